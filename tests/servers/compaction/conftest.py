"""Fixtures of compaction: attempts, and a search of every stored byte."""

import pytest

from agent_layer.schema.codec import decode, record_owner
from agent_layer.schema.record import TokenIds
from agent_layer.schema.step import PromptDelta
from agent_layer.schema.training import PolicyVersion

from ...builders import attempt, call, closed_group, content, sampled
from ...stored import collect_answers, keys_that_hold, mark_deleted, segment_keys, stored_records


def make_attempt(tid, at=100.0, score=1.0, text="hello"):
    """Return the records of one accepted attempt with a call, in three parts."""
    answer = sampled(3, 4, version=4, message={"role": "assistant", "content": text})
    start, end = call(tid, "a", answer, at=at + 1, agent="solver", prompt=PromptDelta(delta=TokenIds([1, 2])))
    words = content(tid, f'"{text}"'.encode())
    started, *rest = attempt(tid, start, words, end, at=at, score=score, labels={"secret": text}, group_id="g")
    return [[started, rest[0]], rest[1:3], rest[3:]]


def make_group(group_id, *members, at=9.0):
    return closed_group(group_id, *members, closed_at=at, group_size=len(members))


class Scene:
    """A store, ways to write to it, and searches of its bytes."""

    make_attempt = staticmethod(make_attempt)
    make_group = staticmethod(make_group)

    def __init__(self, store, write):
        self._store = store
        self._write = write

    def fill(self, num_attempts=6):
        """Each attempt in three segments, neighbours in one."""
        parts = [make_attempt(f"x.{number}-0", at=100.0 + number) for number in range(num_attempts)]
        for number in range(0, num_attempts, 2):
            for first, second in zip(parts[number], parts[number + 1], strict=True):
                self._write(*first, *second)
        members = [f"x.{number}-0" for number in range(num_attempts)]
        self._write(make_group("g", *members[:3]), make_group("h", *members[3:], at=10.0))
        self._write(PolicyVersion(run="r", number=0, location="w", created_at=1.0))
        return members

    def answers(self):
        return collect_answers(self._store)

    def segments(self):
        return segment_keys(self._store)

    def mark_deleted(self, *owners):
        mark_deleted(self._store, *owners)

    def records(self):
        """Yield all records of all segments: (owner, stored form)."""
        return ((record_owner(decode(stored)), stored) for stored in stored_records(self._store))

    def places(self, text):
        return keys_that_hold(self._store, text)


@pytest.fixture
def scene(store, write):
    return Scene(store, write)
