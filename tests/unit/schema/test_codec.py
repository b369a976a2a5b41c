"""The stored form loses nothing, unknown fields included."""

import pickle

import msgspec
import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import CorruptRecordError
from agent_layer.schema.codec import decode, decode_known, encode, record_owner
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Label, Reward
from agent_layer.schema.rollout import Group, Resumed
from agent_layer.schema.step import Action, Content, PromptDelta, StepPart, StepState
from agent_layer.schema.task import Limits, RewardSpec, Task
from agent_layer.schema.training import PolicyVersion

int32s = st.integers(-(2**31), 2**31 - 1)
names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
actions = st.builds(
    Action,
    message=st.none() | st.dictionaries(names, json_values, max_size=3),
    response_token_ids=st.none() | st.lists(int32s, max_size=6).map(TokenIds),
    logprobs=st.none() | st.lists(st.floats(-50, 0, width=32), max_size=6).map(Logprobs),
    policy_versions=st.none() | st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3),
)
parts = st.builds(
    StepPart,
    trajectory_id=names,
    call_id=names,
    run=names,
    source=st.sampled_from(["gateway", "hook", "handler", "decorator", "otel"]),
    phase=st.sampled_from(["start", "end"]),
    at=st.floats(0, 2e9),
    agent=st.none() | names,
    state=st.none() | st.builds(StepState, messages=st.none() | st.lists(names, max_size=3)),
    prompt=st.none() | st.builds(PromptDelta, delta=st.lists(int32s, max_size=6).map(TokenIds)),
    actions=st.none() | st.lists(actions, max_size=3),
    findings=st.lists(names, max_size=2),
)
tasks = st.builds(
    Task,
    id=names,
    run=names,
    input=json_values,
    grading=json_values,
    rewards=st.dictionaries(names, st.builds(RewardSpec, weight=st.floats(-2, 2)), max_size=2),
    limits=st.builds(Limits, turns=st.none() | st.integers(0, 99)),
)
resumes = st.builds(
    Resumed, trajectory_id=names, run=names, at=st.floats(0, 2e9), worker=st.none() | names, abandoned=st.lists(names)
)
labels = st.builds(
    Label, trajectory_id=names, label_id=names, run=names, at=st.floats(0, 2e9), name=names, value=st.none() | names
)
records = parts | tasks | resumes | labels


@given(records)
def test_a_record_survives_its_stored_form(record):
    assert decode(encode(record)) == record


@given(records, names.map("new_{}".format), json_values)
def test_fields_of_a_newer_writer_survive_an_older_reader(record, name, value):
    newer = msgspec.msgpack.decode(encode(record)) | {name: value}

    relayed = encode(decode(msgspec.msgpack.encode(newer)))

    assert decode(relayed).unknown == {name: value}


@given(parts.filter(lambda part: part.actions), names.map("new_{}".format), json_values)
def test_unknown_fields_of_nested_records_survive_too(part, name, value):
    newer = msgspec.msgpack.decode(encode(part))
    newer["actions"][0][name] = value

    relayed = decode(encode(decode(msgspec.msgpack.encode(newer))))

    assert relayed.actions[0].unknown == {name: value}


def test_a_field_that_the_reader_learned_comes_back_to_its_place():
    carried = {"type": "content", "trajectory_id": "t-0", "hash": "h", "unknown": {"body": b"{}", "later": 1}}

    record = decode(msgspec.msgpack.encode(carried))

    assert record == Content(trajectory_id="t-0", hash="h", body=b"{}", unknown={"later": 1})


def test_the_schema_version_is_always_stored():
    assert msgspec.msgpack.decode(encode(Content(trajectory_id="t-0", hash="h", body=b"")))["schema_version"] == 1


@pytest.mark.parametrize("content", [b"", b"\xc1", msgspec.msgpack.encode([1]), msgspec.msgpack.encode({"type": "x"})])
def test_foreign_bytes_are_refused(content):
    with pytest.raises(CorruptRecordError, match="expected msgpack of a known kind"):
        decode(content)


def test_token_arrays_pickle():
    assert pickle.loads(pickle.dumps(TokenIds([7, 8]))) == TokenIds([7, 8])
    assert pickle.loads(pickle.dumps(Logprobs([-0.5]))) == Logprobs([-0.5])


def test_every_record_of_a_log_has_one_owner():
    reward = Reward(trajectory_id="t-0", reward_id="r", run="r", at=0.0)
    group = Group(group_id="g", run="r", task_id="t", closed_at=0.0)
    policy = PolicyVersion(run="r", number=3, location="x", created_at=0.0)

    assert [record_owner(reward), record_owner(group), record_owner(policy)] == ["t-0", "group:g", "policy:r:3"]


PART = StepPart(
    trajectory_id="t-0",
    call_id="c",
    run="r",
    source="gateway",
    phase="end",
    at=1.0,
    actions=[Action(response_token_ids=TokenIds([7, 8]))],
)


def test_reading_what_is_known_gives_the_same_record_but_for_what_is_not_known():
    part = StepPart(
        trajectory_id="r-0",
        call_id="c",
        run="r",
        source="gateway",
        phase="end",
        at=1.0,
        actions=[Action(response_token_ids=TokenIds([1, 2]), logprobs=Logprobs([-1.0, -2.0]))],
        unknown={"later": 1},
    )

    known = decode_known(encode(part))

    assert known == decode(encode(part))
    with pytest.raises(CorruptRecordError):
        decode_known(b"\x81\xa4type\xa6poetry")
