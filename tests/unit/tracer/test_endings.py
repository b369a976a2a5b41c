"""Rollouts that end with an error: ended once, with the right cause, and the program's own error propagates."""

import asyncio
import threading

import pytest

import tracer
from agent_layer.errors import BackPressureError
from agent_layer.schema.rollout import Outcome
from agent_layer.schema.step import Observation
from agent_layer.settings import Settings
from tracer.session import Session, use_session
from tracer.testing import Captured

from ...waiting import scaled


def endings(captured):
    return [(one.started.task_id, one.outcome.status, one.outcome.cause) for one in captured.trajectories]


async def test_a_task_that_is_cancelled_cancels_its_rollout_and_leaves_nothing_open():
    begun = asyncio.Event()

    @tracer.tool
    async def wait_for_ever():
        begun.set()
        await asyncio.Event().wait()

    async def live():
        async with tracer.rollout(task="t"):
            await wait_for_ever()

    with tracer.testing.capture() as captured:
        living = asyncio.create_task(live())
        await begun.wait()
        living.cancel()
        with pytest.raises(asyncio.CancelledError):
            await living

    assert endings(captured) == [("t", "cancelled", "user")]
    assert [one.status for one in captured.observations] == ["error"]
    assert captured.trajectory.accepted is None


class SlowSink(Captured):
    """Takes its time to open a rollout."""

    def __init__(self):
        super().__init__()
        self.is_requested, self.may_go = threading.Event(), threading.Event()

    def append(self, *records):
        self.is_requested.set()
        assert self.may_go.wait(scaled(60))
        return super().append(*records)


async def test_a_rollout_whose_opening_is_cancelled_is_ended_all_the_same(wait_until):
    sink = SlowSink()

    async def live():
        async with tracer.rollout(task="t"):
            pytest.fail("the block was cancelled before it began")

    with use_session(Session(settings=Settings(), sink=sink)):
        living = asyncio.create_task(live())
        assert await asyncio.to_thread(sink.is_requested.wait, scaled(60))
        living.cancel()
        with pytest.raises(asyncio.CancelledError):
            await living
        sink.may_go.set()
        await asyncio.to_thread(wait_until, lambda: any(isinstance(one, Outcome) for one in sink.records))

    assert endings(sink) == [("t", "cancelled", "user")]


class FullLog(Captured):
    """A log that takes no observations, as when the disk is full."""

    def append(self, *records):
        if any(isinstance(record, Observation) for record in records):
            raise BackPressureError("log: expected room, found none")
        return super().append(*records)


def leave_a_tool_open():
    @tracer.tool
    def endless():
        while True:
            yield 1

    items = endless()
    next(items)
    return items


def test_a_rollout_that_cannot_keep_what_it_left_open_fails_for_infrastructure():
    log = FullLog()
    into = use_session(Session(settings=Settings(), sink=log))
    with into, pytest.raises(BackPressureError), tracer.rollout(task="t"):
        items = leave_a_tool_open()

    assert endings(log) == [("t", "failed", "infra")]
    items.close()


def test_an_error_of_the_block_goes_on_where_its_rest_cannot_be_kept():
    log, items = FullLog(), []

    @tracer.rollout(task="t")
    def fail():
        items.append(leave_a_tool_open())
        raise ValueError("mine")

    with use_session(Session(settings=Settings(), sink=log)), pytest.raises(ValueError, match="mine") as raised:
        fail()

    assert endings(log) == [("t", "failed", "user")]
    assert "found none" in raised.value.__notes__[0]
    items[0].close()


def test_an_inner_rollout_that_fails_does_not_end_the_outer_one():
    with tracer.testing.capture() as captured, tracer.rollout(task="outer") as outer:
        with pytest.raises(ValueError, match="inner"), tracer.rollout(task="inner"):
            raise ValueError("inner")
        assert tracer.current() is outer
        outer.reward(1.0)

    assert endings(captured) == [("outer", "completed", None), ("inner", "failed", "user")]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_whatever_leaves_nested_rollouts_ends_all_of_them(error):
    captured = tracer.testing.capture()
    with captured as found, pytest.raises(error), tracer.rollout(task="outer"), tracer.rollout(task="inner"):
        raise error

    assert endings(found) == [("outer", "cancelled", "user"), ("inner", "cancelled", "user")]


class SilentError(Exception):
    """An error that cannot be described."""

    def __repr__(self):
        raise RuntimeError("no repr")


def test_an_error_that_cannot_be_described_goes_on_all_the_same():
    @tracer.tool
    def fail():
        raise SilentError

    with tracer.testing.capture() as captured, pytest.raises(SilentError), tracer.rollout(task="t"):
        fail()

    assert endings(captured) == [("t", "failed", "user")]
    assert [one.status for one in captured.observations] == ["error"]


async def test_a_generator_that_is_left_inside_a_rollout_ends_it_wherever_it_is_closed():
    async def live():
        async with tracer.rollout(task="left"):
            yield 1
            yield 2

    with tracer.testing.capture() as captured:
        items = live()
        await asyncio.create_task(anext(items))
        await asyncio.create_task(items.aclose())

    assert endings(captured) == [("left", "cancelled", "user")]


async def test_tasks_that_share_a_block_end_each_its_own_rollout():
    may_end = [asyncio.Event(), asyncio.Event()]
    with tracer.testing.capture() as captured:
        block = tracer.rollout(task="t")

        async def live(number):
            async with block as rollout:
                rollout.reward(number)
                await may_end[number].wait()
                assert tracer.current() is rollout
                if number:
                    raise ValueError

        living = [asyncio.create_task(live(number)) for number in range(2)]
        for number in range(2):
            may_end[number].set()
            await asyncio.wait([living[number]])

    assert isinstance(living[1].exception(), ValueError)
    assert sorted((one.rewards[0].score, one.outcome.status) for one in captured.trajectories) == [
        (0.0, "completed"),
        (1.0, "failed"),
    ]
