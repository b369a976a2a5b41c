"""Reading many trajectories yields all of them, in order, with only a few in memory."""

from itertools import islice

import pytest

from agent_layer.errors import BadInputError, CorruptRecordError
from agent_layer.schema.codec import decode, encode
from agent_layer.schema.ids import content_hash
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.rollout import AttemptStarted, Outcome
from agent_layer.schema.step import Action, Content, PromptDelta, StepPart, StepState
from agent_layer.store.segments.format import segment_key

NUM_TRAJECTORIES = 40
BODY = b'"' + b"x" * 5_000 + b'"'


def make_attempt(number, run="r"):
    tid = f"x.{number}-0"
    own = {"trajectory_id": tid, "run": run}
    yield AttemptStarted(**own, rollout_id=tid[:-2], attempt=0, task_id="t", started_at=100.0 + number)
    yield Content(trajectory_id=tid, hash=content_hash(BODY), body=BODY)
    for step in range(3):
        part = {**own, "source": "gateway", "call_id": f"{tid}/{step}"}
        call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call] if step == 1 else []}
        action = Action(message=message, response_token_ids=TokenIds([step]), logprobs=Logprobs([-1.0]))
        state = StepState(messages=[content_hash(BODY)])
        yield StepPart(**part, phase="start", at=110.0 + step, prompt=PromptDelta(delta=TokenIds([9])), state=state)
        yield StepPart(**part, phase="end", at=110.5 + step, actions=[action], status="ok", capture_level="tokens")
    yield Outcome(**own, status="completed", ended_at=120.0)


@pytest.fixture
def full_store(store, write):
    for begin in range(0, NUM_TRAJECTORIES, 10):
        write(*(record for number in range(begin, begin + 10) for record in make_attempt(number)))
    return store


@pytest.fixture
def counted(full_store, monkeypatch):
    """The keys that were asked of the objects, in order."""
    questions = []
    get = full_store.objects.get
    monkeypatch.setattr(full_store.objects, "get", lambda key, *place: questions.append(key) or get(key, *place))
    return questions


def test_all_steps_come_in_order_of_start(full_store):
    steps = list(full_store.iter_steps(run="r"))

    expected = [(f"x.{number}-0", step) for number in range(NUM_TRAJECTORIES) for step in range(3)]
    assert [(step.trajectory_id, step.index) for step in steps] == expected
    assert [step.prompt_token_ids.tolist() for step in steps[:3]] == [[9], [9], [9]]
    assert list(full_store.iter_steps(run="other")) == []


def test_no_more_is_read_than_a_few_ahead(full_store, counted):
    taken = list(islice(full_store.iter_steps(), 2))

    assert [step.index for step in taken] == [0, 1]
    assert len(counted) <= 16


def test_contents_are_neither_decoded_nor_fetched(full_store, monkeypatch):
    decoded = []
    monkeypatch.setattr(
        "agent_layer.store.reading.reader.decode", lambda one: decoded.append(decode(one)) or decoded[-1]
    )

    [step, *_] = full_store.iter_steps(until=100.0)
    assert step.state.messages == [content_hash(BODY)]
    assert not any(isinstance(record, Content) for record in decoded)

    [_, trajectory] = next(iter(full_store.read(full_store.scan(until=100.0))))
    assert trajectory.contents == {content_hash(BODY): BODY}


@pytest.mark.parametrize(
    ("wanted", "indices"), [({"step": 1}, [1]), ({"step": 2, "until": 101.0}, [2]), ({"step": 3}, []), ({}, [0, 1, 2])]
)
def test_a_step_that_is_asked_for_is_the_only_one(full_store, wanted, indices):
    found = [step.index for step in full_store.iter_steps(**wanted)]

    assert sorted(set(found)) == indices
    assert full_store.steps(columns=["index"], **wanted).read_all().column("index").to_pylist() == found


def test_arrow_gives_what_iteration_gives(full_store):
    table = full_store.steps(run="r").read_all()

    assert table.column("call_id").to_pylist() == [step.call_id for step in full_store.iter_steps(run="r")]
    assert table.column("logprobs").to_pylist() == [[-1.0]] * table.num_rows
    assert table.column("messages").null_count == table.num_rows
    [filled] = full_store.steps(columns=["messages"], contents=True, until=100.0, step=0).read_all().to_pylist()
    assert filled["messages"] == f"[{BODY.decode()}]"


def test_a_column_that_is_none_is_refused_before_anything_is_read(full_store, counted):
    with pytest.raises(BadInputError, match="column 'colour'"):
        full_store.steps(columns=["colour"])

    assert counted == []


def test_what_was_deleted_meanwhile_is_left_out(full_store):
    rows = full_store.scan()
    first = next(rows)
    full_store.redis.delete(full_store.keys.chunks("x.1-0"))

    found = [trajectory.trajectory_id for _, trajectory in full_store.read([first, *rows])]

    assert len(found) == NUM_TRAJECTORIES - 1
    assert "x.1-0" not in found


def test_what_cannot_be_read_is_named_and_the_rest_is_given(full_store, put):
    name = put(*make_attempt(0, run="s"))
    key = segment_key(full_store.keys, name)
    content = bytearray(full_store.objects.get(key))
    content[20] ^= 1
    full_store.objects.put(key, bytes(content))
    size = len(encode(next(make_attempt(0))))
    full_store.redis.hset(full_store.keys.chunks("x.0-0"), name, f"0 {size}")
    left_out = []

    found = list(full_store.read(full_store.scan(), on_corrupt=left_out.append))

    assert len(found) == NUM_TRAJECTORIES - 1
    assert [type(error) for error in left_out] == [CorruptRecordError]
    with pytest.raises(CorruptRecordError, match=r"part of x\.0-0"):
        list(full_store.iter_steps())
