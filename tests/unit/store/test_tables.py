"""Arrow tables: exact types, and nothing lost on the way there and back."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import BadInputError
from agent_layer.schema.ids import content_hash
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import AttemptStarted, Outcome
from agent_layer.schema.step import Action, Content, PromptDelta, StepPart, StepState
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.arrow.steps import STEP_SCHEMA, step_schema, tabulate_steps
from agent_layer.store.arrow.stream import tabulate_stream
from agent_layer.store.arrow.trajectories import TRAJECTORY_SCHEMA, read_rows, tabulate_rows
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.page import Page
from agent_layer.store.reading.display import show_step
from agent_layer.times import format_time

MESSAGES = (b'{"role":"system","content":"be brief"}', b'{"role":"user","content":"what"}')

texts = st.none() | st.text(max_size=20)
times = st.none() | st.floats(0, 4e9).map(format_time)
versions = st.none() | st.integers(0, 2**40)
ROWS = st.builds(
    TrajectoryRow,
    trajectory_id=st.text(min_size=1, max_size=20),
    rollout_id=texts,
    attempt=st.none() | st.integers(0, 2**31 - 1),
    task_id=texts,
    task_type=texts,
    run=texts,
    split=st.sampled_from([None, "train", "eval"]),
    group_id=texts,
    status=st.sampled_from([None, "running", "completed", "lost"]),
    cause=st.sampled_from([None, "infra", "policy"]),
    accepted=st.booleans(),
    reward=st.none() | st.floats(allow_nan=False),
    num_steps=st.integers(0, 2**31 - 1),
    policy_min=versions,
    policy_max=versions,
    agents=st.lists(st.text(max_size=9), max_size=3),
    started_at=times,
    ended_at=times,
    labels=st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3),
    worker=texts,
    tools=st.lists(st.text(max_size=9), max_size=3),
    input_hash=texts,
    env=texts,
    env_version=texts,
    engines=st.lists(st.text(max_size=9), max_size=3),
)


def read_records(token_ids=(3, 4), logprobs=(-0.5, -0.25)):
    own = {"trajectory_id": "x.0-0", "run": "r"}
    part = {**own, "source": "gateway", "call_id": "c", "agent": "solver"}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}],
    }
    return [
        AttemptStarted(**own, rollout_id="x.0", attempt=0, task_id="t", task_type="math", started_at=100.25),
        *(Content(trajectory_id="x.0-0", hash=content_hash(body), body=body) for body in MESSAGES),
        StepPart(**part, phase="start", at=101.5, state=StepState(messages=[content_hash(body) for body in MESSAGES])),
        StepPart(
            **part,
            phase="end",
            at=102.000001,
            prompt=PromptDelta(delta=TokenIds([1, 2])),
            actions=[
                Action(
                    message=message,
                    response_token_ids=TokenIds(token_ids),
                    logprobs=Logprobs(logprobs),
                    policy_versions=[(2**33, len(token_ids))],
                    finish_reason="tool_calls",
                ),
                Action(message={"role": "assistant", "content": "no"}),
            ],
            status="ok",
            capture_level="tokens",
        ),
        Reward(**own, reward_id="1", at=103.0, score=1.0),
        Reward(**own, reward_id="2", at=103.0, score=0.25, scope="step", step=0),
        Outcome(**own, status="completed", ended_at=104.0),
    ]


@given(st.lists(ROWS, max_size=5))
def test_rows_come_back_from_arrow_as_they_were(rows):
    table = tabulate_rows(rows)

    assert table.schema == TRAJECTORY_SCHEMA
    assert read_rows(table) == rows


def test_every_field_of_a_row_is_a_column():
    assert TRAJECTORY_SCHEMA.names == list(TrajectoryRow.__struct_fields__)


def test_a_page_becomes_a_data_frame():
    page = Page(items=[TrajectoryRow(trajectory_id="a-0", reward=0.5, started_at="2026-11-22T10:00:00.250Z")])

    frame = page.to_pandas()

    assert frame.loc["a-0", "reward"] == 0.5
    assert frame.loc["a-0", "started_at"].to_pydatetime() == datetime(2026, 11, 22, 10, 0, 0, 250_000, UTC)
    assert frame["policy_max"].isna().all()
    assert Page(items=[]).to_arrow().schema == TRAJECTORY_SCHEMA


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats(-1e4, 0, width=32)), max_size=20))
def test_tokens_and_logprobs_are_exact(sampled):
    ids, logprobs = [one for one, _ in sampled], [two for _, two in sampled]
    trajectory = assemble_trajectory("x.0-0", read_records(ids, logprobs))

    first, second = tabulate_steps(trajectory).to_pylist()

    assert (first["response_token_ids"], first["logprobs"]) == (ids, logprobs)
    assert (first["prompt_token_ids"], second["prompt_token_ids"]) == ([1, 2], [1, 2])
    assert (second["response_token_ids"], second["logprobs"]) == (None, None)


def test_the_table_says_what_show_says():
    trajectory = assemble_trajectory("x.0-0", read_records())
    shown = [show_step(trajectory, step) for step in trajectory.steps]

    batch = tabulate_steps(trajectory)
    rows = batch.to_pylist()

    assert batch.schema == STEP_SCHEMA
    for row, step in zip(rows, shown, strict=True):
        alike = (
            "index",
            "call_id",
            "choice",
            "agent",
            "role",
            "parent",
            "reward",
            "status",
            "capture_level",
            "sources",
        )
        assert {name: row[name] for name in alike} == {name: step[name] for name in alike}
    assert (rows[0]["task_id"], rows[0]["task_type"], rows[0]["rollout_reward"]) == ("t", "math", 1.0)
    assert rows[0]["policy_versions"] == [{"version": 2**33, "num_tokens": 2}]
    assert rows[0]["tool_calls"] == [{"id": "1", "name": "look", "arguments": '{"a":1}'}]
    assert rows[0]["ended_at"] == datetime(1970, 1, 1, 0, 1, 42, 1, UTC)


def test_contents_are_there_when_they_are_asked_for():
    trajectory = assemble_trajectory("x.0-0", read_records())

    [without, _], [filled, _] = (tabulate_steps(trajectory, contents=command).to_pylist() for command in (False, True))

    assert (without["messages"], len(without["message_hashes"])) == (None, 2)
    assert filled["messages"] == f"[{','.join(body.decode() for body in MESSAGES)}]"


def test_columns_that_are_asked_for_are_all_there_is():
    trajectory = assemble_trajectory("x.0-0", read_records())

    assert tabulate_steps(trajectory, columns=["logprobs", "index"]).to_pylist()[0] == {
        "logprobs": [-0.5, -0.25],
        "index": 0,
    }
    with pytest.raises(BadInputError, match="column 'colour'"):
        step_schema(["colour"])


def test_a_stream_holds_every_step_in_batches_of_some_size():
    trajectory = assemble_trajectory("x.0-0", read_records())

    reader = tabulate_stream(((trajectory, trajectory.steps) for _ in range(5_000)), columns=["index"], contents=False)
    sizes = [batch.num_rows for batch in reader]

    assert (sum(sizes), len(sizes)) == (10_000, 3)
    assert tabulate_stream([], columns=None, contents=False).read_all().schema == STEP_SCHEMA


def test_every_column_is_documented():
    documented = (Path(__file__).parents[3] / "docs" / "internals" / "tables.md").read_text()

    assert [name for name in TRAJECTORY_SCHEMA.names + STEP_SCHEMA.names if f"`{name}`" not in documented] == []


def test_columns_carry_their_meaning():
    for schema in (TRAJECTORY_SCHEMA, STEP_SCHEMA):
        assert all(field.metadata[b"meaning"] for field in schema)
        assert not any(pa.types.is_map(field.type) for field in schema)


def test_without_arrow_there_is_one_sentence(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("agent_layer.store.arrow")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(BadInputError, match=r"'pyarrow', which is not installed; pip install .*\[arrow\]'"):
        Page(items=[]).to_arrow()
