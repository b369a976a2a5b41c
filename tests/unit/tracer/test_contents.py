import dataclasses
import json
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from agent_layer.schema.messages import resolve
from tracer.core.contents import ContentWriter, json_text, json_value, safe_repr
from tracer.core.rollout_handle import Rollout
from tracer.testing import Captured

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)


def rollout_into(sink):
    return Rollout(trajectory_id="r-0", rollout_id="r", attempt=0, run="r", sink=sink)


def read_contents(captured):
    return {record.hash: record.body for record in captured.records}


@given(json_values)
def test_a_json_value_stays_what_it_is(value):
    assert json_value(value) == value


class Point(BaseModel):
    x: int


@dataclasses.dataclass
class Pair:
    left: object


class Odd:
    def __repr__(self):
        return "<odd>"


def test_whatever_an_agent_holds_becomes_json():
    held = {"point": Point(x=1), "pair": Pair(Odd()), "set": {1}, "bytes": b"ab", "money": Decimal("1.5"), 3: 4}

    answer = json_value(held)

    assert answer == {"point": {"x": 1}, "pair": {"left": "<odd>"}, "set": [1], "bytes": "YWI=", "money": "1.5", "3": 4}


def test_what_json_cannot_hold_is_told_by_its_repr():
    endless = []
    endless.append(endless)

    assert json_value(endless) == "[[...]]"
    assert json_value({"half": "\ud800"}) == "{'half': '\\ud800'}"
    assert json_value({"huge": 2**80}) == f"{{'huge': {2**80}}}"
    assert json.loads(json_text({1.5: object})) == {"1.5": "<class 'object'>"}


class Awkward:
    """Raises on every inspection."""

    def __repr__(self):
        raise RuntimeError("no repr")

    def model_dump(self, mode):
        raise AttributeError(mode)


class AwkwardError(Exception):
    __repr__ = __str__ = Awkward.__repr__


def test_a_value_that_cannot_be_described_fails_nobody():
    message = "<Awkward, whose repr raises RuntimeError>"
    assert json_value(Awkward()) == message
    assert json_value({"deep": [Awkward()], "fine": 1}) == {"deep": [message], "fine": 1}
    assert json_value({Awkward()}) == [message]
    assert safe_repr(AwkwardError()) == "<AwkwardError, whose repr raises RuntimeError>"


texts = st.sampled_from(["short", "long " * 300, "other " * 300])


@given(st.lists(st.lists(st.fixed_dictionaries({"role": st.sampled_from("ab"), "content": texts}), max_size=4)))
def test_every_reference_is_to_what_was_meant_and_is_stored_before_it(calls):
    captured = Captured()
    rollout = rollout_into(captured)
    for messages in calls:
        for _ in range(2):
            contents = ContentWriter(rollout)
            keys = [contents.add(message) for message in messages]
            contents.write()
            stored = read_contents(captured)
            assert [resolve(stored, key) for key in keys] == messages

    assert len(captured.records) == len(read_contents(captured))


def test_a_message_that_is_changed_in_place_is_another_message():
    captured = Captured()
    rollout = rollout_into(captured)
    message = {"role": "user", "content": "long " * 300}
    keys = []
    for turn in range(3):
        contents = ContentWriter(rollout)
        keys += [contents.add(message), contents.add(dict(message))]
        contents.write()
        message["content"] += f"and {turn}"

    assert len(set(keys)) == 3
    assert len(captured.records) == 3


class LogFullError(Exception):
    pass


class FullLog(Captured):
    def append(self, *_):
        raise LogFullError


def test_what_a_full_log_refused_is_not_taken_for_stored():
    captured = Captured()
    refused = rollout_into(FullLog())
    contents = ContentWriter(refused)
    contents.add("text")
    with pytest.raises(LogFullError):
        contents.write()
    object.__setattr__(refused, "sink", captured)
    again = ContentWriter(refused)
    key = again.add("text")
    again.write()

    assert read_contents(captured)[key] == b'"text"'
