"""Forked children continue the rollout; scopes that their parent opened are closed by the parent."""

import os

import tracer
from agent_layer.settings import Settings
from tracer.core.calls import adopt_call
from tracer.core.scope import current_scope
from tracer.session import Session, use_session
from tracer.testing import Captured


class PipedRecords(Captured):
    """Sends each record through a pipe, also from child processes."""

    def __init__(self):
        super().__init__()
        self._read_end, self._write_end = os.pipe()

    def append(self, *records):
        self.say(*(type(record).__name__ for record in records))
        return super().append(*records)

    def say(self, *words):
        os.write(self._write_end, "".join(f"{word} " for word in words).encode())

    def hear(self):
        os.close(self._write_end)
        with os.fdopen(self._read_end) as answer:
            return answer.read().split()


def leave_in_a_child():
    """Raise what ends a child; in the parent, wait for it."""
    child = os.fork()
    if not child:
        raise SystemExit
    os.waitpid(child, 0)


def test_a_child_that_leaves_the_block_does_not_end_the_rollout():
    answer, parent = PipedRecords(), os.getpid()

    @tracer.tool
    def endless():
        while True:
            yield 1

    try:
        with use_session(Session(settings=Settings(), sink=answer)), tracer.rollout(task="t"):
            items = endless()
            next(items)
            leave_in_a_child()
    except SystemExit:
        pass
    finally:
        if os.getpid() != parent:
            os._exit(0)

    assert answer.hear() == ["AttemptStarted", "Observation", "Outcome", "Accepted"]
    items.close()


def test_calls_of_children_are_calls_of_their_own():
    answer = PipedRecords()

    @tracer.step
    def ask():
        for _ in range(2):
            child = os.fork()
            if not child:
                answer.say(adopt_call(current_scope(), "hook").call_id)
                os._exit(0)
            os.waitpid(child, 0)

    with use_session(Session(settings=Settings(), sink=answer)), tracer.rollout(task="t"):
        ask()

    calls = [word for word in answer.hear() if word.islower()]
    assert len(set(calls) - {step.call_id for step in answer.steps}) == 2
