"""``store export jsonl`` and ``store export verl``."""

import json
import os

import pandas
import pytest
from omegaconf import OmegaConf

from agent_layer.store import open_store
from agent_layer.store.reading.display import show_trajectory


def test_each_line_is_what_show_shows(record, make_attempt, agent_layer, settings, tmp_path):
    record(make_attempt("x.0-0"), make_attempt("x.1-0", at=200.0))
    store = open_store(settings)

    assert agent_layer("store", "export", "jsonl", tmp_path / "f.jsonl")[1].endswith(f"in {tmp_path / 'f.jsonl'}\n")
    status, out, _ = agent_layer("store", "export", "jsonl", "-")

    assert (status, out) == (0, (tmp_path / "f.jsonl").read_text())
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["trajectory_id"] for line in lines] == ["x.0-0", "x.1-0"]
    shown = show_trajectory(store.row("x.0-0"), store.get("x.0-0"))
    assert lines[0]["steps"][0]["state"] == shown["steps"][0]["state"]
    assert lines[0]["steps"][0]["action"]["response_token_ids"] == [3, 4]


def test_without_contents_hashes_stand_for_them(record, make_attempt, agent_layer):
    record(make_attempt("x.0-0"))

    _, out, _ = agent_layer("store", "export", "jsonl", "-", "--no-contents")

    assert [len(one) for one in json.loads(out)["steps"][0]["state"]["messages"]] == [32, 32]


def test_a_place_that_cannot_be_written_to_is_one_sentence(agent_layer, tmp_path):
    (tmp_path / "file").write_text("")

    status, _, err = agent_layer("store", "export", "jsonl", tmp_path / "file" / "f.jsonl")

    assert status == 2
    assert "expected a place that can be written to" in err


def test_what_is_no_file_is_never_replaced(agent_layer, tmp_path):
    os.mkfifo(tmp_path / "pipe")

    for place in (tmp_path / "pipe", ""):
        status, _, err = agent_layer("store", "export", "jsonl", place)
        assert (status, err.count("expected the name of a file")) == (2, 1)

    assert (tmp_path / "pipe").is_fifo()


def test_an_argument_that_is_no_text_is_one_sentence(agent_layer):
    status, _, err = agent_layer("query", "--run", b"\xff".decode(errors="surrogateescape"))

    assert status == 2
    assert "expected text in UTF-8" in err


def test_each_task_is_one_row_of_verl(record, make_attempt, agent_layer, tmp_path):
    record(*(make_attempt(f"x.{n}-0", at=100.0 + n, task=f"t{n // 2}") for n in range(4)))

    status, out, _ = agent_layer("store", "export", "verl", tmp_path / "f.parquet")

    assert (status, out) == (0, f"2 tasks in {tmp_path / 'f.parquet'}\n")
    frame = pandas.read_parquet(tmp_path / "f.parquet")
    assert list(frame.columns) == ["prompt", "data_source", "ability", "reward_model", "extra_info"]
    assert frame["prompt"][0].tolist() == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "6 times 7?"},
    ]
    assert frame["reward_model"][0] == {"style": "rule", "ground_truth": "42"}
    assert [info["index"] for info in frame["extra_info"]] == [0, 1]
    assert frame["extra_info"][1]["trajectory_id"] == "x.2-0"


def test_verl_itself_reads_the_file(record, make_attempt, agent_layer, tmp_path):
    transformers = pytest.importorskip("transformers")
    dataset = pytest.importorskip("verl.utils.dataset.rl_dataset")
    record(*(make_attempt(f"x.{n}-0", at=100.0 + n, task=f"t{n}") for n in range(3)))
    agent_layer("store", "export", "verl", tmp_path / "f.parquet")
    from trainer_adapter.demo.model import write_model  # noqa: PLC0415  # torch takes seconds to import

    write_model(tmp_path / "model", seed=0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    config = OmegaConf.create({"cache_dir": str(tmp_path / "cache"), "filter_overlong_prompts": False})

    read = dataset.RLHFDataset(str(tmp_path / "f.parquet"), tokenizer, config)

    assert len(read) == 3
    assert read[1]["raw_prompt"][-1] == {"role": "user", "content": "6 times 7?"}
    assert (read[1]["index"], read[1]["data_source"]) == (1, "math")


def test_an_empty_answer_is_a_file_with_its_columns(agent_layer, tmp_path):
    agent_layer("store", "export", "verl", tmp_path / "f.parquet")
    agent_layer("store", "export", "jsonl", tmp_path / "f.jsonl")

    assert "prompt" in pandas.read_parquet(tmp_path / "f.parquet").columns
    assert (tmp_path / "f.jsonl").read_text() == ""
