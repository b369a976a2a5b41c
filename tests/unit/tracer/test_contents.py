import pytest
from hypothesis import given, strategies as st

from agent_layer.schema.messages import resolve
from tracer.core.contents import ContentWriter
from tracer.core.rollout_handle import Rollout
from tracer.testing import Captured


def rollout_into(sink):
    return Rollout(trajectory_id="r-0", rollout_id="r", attempt=0, run="r", sink=sink)


def read_contents(captured):
    return {record.hash: record.body for record in captured.records}


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
