"""``store export parquet``: the dataset equals the query's result, and other libraries can read it."""

import json

import duckdb
import pandas
import pyarrow.parquet
import pytest

from agent_layer.recorder import open_recorder
from agent_layer.store import open_store
from agent_layer.store.arrow.steps import STEP_SCHEMA
from agent_layer.store.arrow.trajectories import TRAJECTORY_SCHEMA, read_rows


def rows_in(directory):
    """Rows of the trajectories, by id, as pyarrow reads them."""
    table = pyarrow.parquet.read_table(directory / "trajectories")
    rows = read_rows(table.select(TRAJECTORY_SCHEMA.names))
    assert len({row.trajectory_id for row in rows}) == len(rows)
    return {row.trajectory_id: row for row in rows}


def steps_in(directory):
    table = pyarrow.parquet.read_table(directory / "steps", columns=["trajectory_id", "index"])
    return sorted((row["trajectory_id"], row["index"]) for row in table.to_pylist())


@pytest.fixture
def load_dataset():
    """Of Hugging Face's library."""
    import datasets  # noqa: PLC0415  # it takes seconds, which collecting must not

    return datasets.load_dataset


@pytest.fixture
def answer(settings):
    """``answer(**filters)``: the store's answer, in the form of ``rows_in`` and ``steps_in``."""

    def answer(**filters):
        rows = {row.trajectory_id: row for row in open_store(settings).scan(**filters)}
        return rows, sorted((one, index) for one, row in rows.items() for index in range(row.num_steps))

    return answer


def test_a_dataset_holds_what_the_store_answers(record, make_attempt, agent_layer, answer, tmp_path):
    record(*(make_attempt(f"x.{number}-0", at=100.0 + number, num_steps=number % 3) for number in range(20)))

    status, out, err = agent_layer("store", "export", "parquet", tmp_path / "d")

    assert (status, out) == (0, f"20 trajectories in {tmp_path / 'd'}\n"), err
    assert (rows_in(tmp_path / "d"), steps_in(tmp_path / "d")) == answer()


def test_pandas_duckdb_and_datasets_read_the_same_rows(record, make_attempt, agent_layer, load_dataset, tmp_path):
    record(*(make_attempt(f"x.{number}-0", at=100.0 + number, score=number / 4) for number in range(5)))
    agent_layer("store", "export", "parquet", tmp_path / "d", "--contents")
    files = str(tmp_path / "d" / "steps" / "*.parquet")

    frame = pandas.read_parquet(tmp_path / "d" / "steps")
    in_duckdb = duckdb.sql(f"select * from '{files}' order by trajectory_id, index").to_arrow_table().to_pylist()
    loaded = load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "cache"))["train"]

    assert list(frame.columns) == loaded.column_names == list(in_duckdb[0]) == STEP_SCHEMA.names
    for name in ("trajectory_id", "index", "rollout_reward", "messages", "message"):
        expected = [row[name] for row in loaded]
        assert frame[name].tolist() == expected
        assert [row[name] for row in in_duckdb] == expected
    assert [ids.tolist() for ids in frame["response_token_ids"]] == [row["response_token_ids"] for row in loaded]
    assert loaded[0]["policy_versions"] == [{"version": 2, "num_tokens": 2}]
    assert json.loads(loaded[0]["messages"])[1]["content"] == "6 times 7?"
    assert loaded[0]["observations"][0]["output"] == '{"a":1}'


def test_labels_and_times_are_read_by_all(record, make_attempt, agent_layer, load_dataset, tmp_path):
    record(make_attempt("x.0-0"))
    agent_layer("store", "export", "parquet", tmp_path / "d")
    file = str(tmp_path / "d" / "trajectories" / "*.parquet")

    [[level, year]] = duckdb.sql(
        f"select map_from_entries(labels)['level'], year(started_at at time zone 'UTC') from '{file}'"
    ).fetchall()
    loaded = load_dataset("parquet", data_files=file, cache_dir=str(tmp_path / "cache"))["train"]

    assert (level, year) == ("1", 1970)
    assert loaded[0]["labels"] == [{"key": "level", "value": "1"}]
    assert loaded[0]["started_at"].isoformat() == "1970-01-01T00:01:40+00:00"


def test_an_empty_answer_is_a_dataset_without_rows(agent_layer, load_dataset, tmp_path):
    assert agent_layer("store", "export", "parquet", tmp_path / "d")[0] == 0

    for table, schema in {"trajectories": TRAJECTORY_SCHEMA, "steps": STEP_SCHEMA}.items():
        directory = tmp_path / "d" / table
        assert pyarrow.parquet.read_table(directory).schema.equals(schema)
        assert pandas.read_parquet(directory).empty
        assert duckdb.sql(f"select * from '{directory}/*.parquet'").fetchall() == []
        files = str(directory / "*.parquet")
        streamed = load_dataset("parquet", data_files=files, cache_dir=str(tmp_path), streaming=True)["train"]
        assert list(streamed) == []  # unstreamed it refuses whatever has no rows


def test_filters_choose_and_a_step_is_the_only_one(record, make_attempt, agent_layer, answer, tmp_path):
    record(*(make_attempt(f"x.{number}-0", score=number / 10) for number in range(10)))

    command = ("--reward", "0.5..", "--step", "1", "--run", "r", "--accepted")
    assert agent_layer("store", "export", "parquet", tmp_path / "d", *command)[0] == 0

    rows, _ = answer(reward=(0.5, None))
    assert rows_in(tmp_path / "d") == rows
    assert steps_in(tmp_path / "d") == [(one, 1) for one in sorted(rows)]


def test_only_the_tables_that_are_asked_for_are_there(record, make_attempt, agent_layer, tmp_path):
    record(make_attempt("x.0-0"))

    agent_layer("store", "export", "parquet", tmp_path / "d", "--no-trajectories")

    assert sorted(path.name for path in (tmp_path / "d").iterdir() if path.is_dir()) == ["steps"]
    assert steps_in(tmp_path / "d") == [("x.0-0", 0), ("x.0-0", 1)]


def test_exporting_again_enters_what_has_changed(record, make_attempt, agent_layer, answer, settings, tmp_path):
    record(*(make_attempt(f"x.{number}-0", score=1.0) for number in range(4)))
    command = ("store", "export", "parquet", tmp_path / "d", "--reward", "0.5..")
    agent_layer(*command)
    store = open_store(settings)
    store.reward("x.1-0", 0.75, name="reward")
    store.reward("x.2-0", 0.0, name="reward")
    assert open_recorder(settings).flush().pending == 0
    record(make_attempt("x.4-0"))

    assert agent_layer(*command)[0] == 0

    rows, steps = answer(reward=(0.5, None))
    assert sorted(rows) == ["x.0-0", "x.1-0", "x.3-0", "x.4-0"]
    assert (rows_in(tmp_path / "d"), steps_in(tmp_path / "d")) == (rows, steps)
    rewards = pandas.read_parquet(tmp_path / "d" / "steps").groupby("trajectory_id")["rollout_reward"].max()
    assert rewards["x.1-0"] == 0.75


def test_a_later_label_enters_and_leaves_a_dataset(record, make_attempt, agent_layer, answer, settings, tmp_path):
    record(make_attempt("x.0-0"), make_attempt("x.1-0"))
    command = ("store", "export", "parquet", tmp_path / "d", "--label", "level=2")
    store = open_store(settings)
    for value, ids in (("2", ["x.1-0"]), (None, [])):
        store.label("x.1-0", name="level", value=value)
        assert open_recorder(settings).flush().pending == 0

        assert agent_layer(*command)[0] == 0

        rows, steps = answer(labels={"level": "2"})
        assert sorted(rows) == ids
        assert (rows_in(tmp_path / "d"), steps_in(tmp_path / "d")) == (rows, steps)


def test_another_question_needs_another_directory(agent_layer, tmp_path):
    agent_layer("store", "export", "parquet", tmp_path / "d", "--run", "r")

    status, _, err = agent_layer("store", "export", "parquet", tmp_path / "d", "--run", "s")

    assert status == 2
    assert "choose another directory" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--reward", "high"], "reward range 'high'"), (["--split", "test"], "split 'test'"), (["--since", "x"], "since")],
)
def test_what_cannot_be_asked_is_one_sentence(agent_layer, tmp_path, arguments, message):
    status, _, err = agent_layer("store", "export", "jsonl", tmp_path / "f", *arguments)

    assert status == 2
    assert message in err
    assert not (tmp_path / "f").exists()
