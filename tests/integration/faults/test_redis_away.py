"""Leases during a Redis outage: no worker loses one because of it."""

import signal
import threading
from collections.abc import Callable

import pytest
from redis import Redis

from agent_layer.dispatcher import Dispatcher, Report
from agent_layer.schema.task import Task

from ...queues import open_queue
from ...waiting import scaled

LEASE_SECONDS = 600.0
"""Longer than any test: time passes when ``pass_time`` says so."""
TASK = Task(id="t", run="r", input=1)


@pytest.fixture
def open_dispatcher(settings):
    """``open_dispatcher()``: the dispatcher as one more process sees it."""

    def connect(**changes):
        usual = {"lease_seconds": LEASE_SECONDS, "heartbeat_seconds": LEASE_SECONDS / 2}
        mine = settings.model_copy(update=usual | changes)
        return Dispatcher(Redis.from_url(mine.redis_url, socket_timeout=scaled(60)), mine)

    return connect


def pass_time(queue, seconds) -> None:
    """Let this time pass for the queue, without any call: all that it wrote down is older afterwards."""
    redis, milliseconds = queue.redis, round(-1000 * seconds)
    for shelf in map(queue.keys.queue, ("leases", "parting")):
        for rollout_id in redis.zrange(shelf, 0, -1):
            redis.zincrby(shelf, milliseconds, rollout_id)
    clock = queue.keys.queue("clock")
    for time in {b"heard", b"away", b"truce"} & set(redis.hkeys(clock)):
        redis.hincrbyfloat(clock, time, milliseconds)


FIRST_HEARD: dict[str, Callable[[Dispatcher], object]] = {
    "a claim": lambda other: open_queue(other).claim("other", 1),
    "a claim that waits": lambda other: open_queue(other).claim("other", 1, wait_seconds=0.2),
    "a heartbeat": lambda other: (open_queue(other).heartbeat("other", b"{}", []), open_queue(other).claim("other", 1)),
    "a worker that listens": lambda other: (
        open_queue(other).listen("other", "0-0", 0.1),
        open_queue(other).claim("other", 1),
    ),
    "who waits for groups": lambda other: other.wait(timeout=0.2),  # wait: what it asks meanwhile is the subject
}


@pytest.mark.parametrize("first", FIRST_HEARD.values(), ids=FIRST_HEARD)
def test_leases_that_lapse_while_redis_hears_nobody_stay_with_their_workers(open_dispatcher, first):
    holder, other = open_queue(open_dispatcher()), open_dispatcher()
    holder.add([TASK])
    (lease,) = holder.claim("holder", 1)
    assert open_queue(other).claim("other", 1) == []

    pass_time(holder, 1.5 * LEASE_SECONDS)
    first(other)

    assert holder.heartbeat("holder", b"{}", [(lease, "running")]).leases == ["go"]
    (rollout,) = holder.views.rollouts([], 10)
    assert (rollout.status, rollout.errors) == ("running", [])


def test_after_an_outage_workers_keep_their_leases_and_one_that_nobody_keeps_lapses(open_dispatcher, own_redis):
    seconds = scaled(1.0)
    holder, other = (open_queue(open_dispatcher(redis_url=own_redis.url, lease_seconds=seconds)) for _ in range(2))
    holder.add([TASK, Task(id="u", run="r", input=1)])
    (kept,), (left,) = holder.claim("holder", 1), holder.claim("gone", 1)
    assert other.claim("other", 1) == []
    own_redis.send(signal.SIGSTOP)
    threading.Timer(1.5 * seconds, own_redis.send, [signal.SIGCONT]).start()

    assert other.claim("other", 1) == []
    assert holder.settle([Report(lease=kept, ending="completed")]) == [None]
    (lease,) = other.claim("other", 1, wait_seconds=scaled(30))
    assert (lease.rollout_id, lease.attempt) == (left.rollout_id, 1)


def let_a_lease_run_out(other) -> None:
    """Pass the time of a lease: others call until its next heartbeat is due, then all are silent for half a lease."""
    pass_time(other, 0.52 * LEASE_SECONDS)
    other.heartbeat("other", b"{}", [])
    pass_time(other, 0.53 * LEASE_SECONDS)


def test_a_silence_of_little_more_than_a_heartbeat_costs_no_lease(open_dispatcher):
    holder, other = open_queue(open_dispatcher()), open_queue(open_dispatcher())
    holder.add([TASK])
    (lease,) = holder.claim("holder", 1)
    assert holder.heartbeat("holder", b"{}", [(lease, "running")]).leases == ["go"]

    let_a_lease_run_out(other)

    assert other.claim("other", 1) == []
    assert holder.heartbeat("holder", b"{}", [(lease, "running")]).leases == ["go"]


def test_who_was_cancelled_while_redis_heard_nobody_can_still_say_how_it_ended(open_dispatcher):
    holder, other = open_queue(open_dispatcher()), open_queue(open_dispatcher())
    (group_id,) = holder.add([TASK])
    (lease,) = holder.claim("holder", 1)
    holder.cancel([group_id])

    let_a_lease_run_out(other)

    assert other.claim("other", 1) == []
    assert holder.redis.zscore(holder.keys.queue("parting"), lease.rollout_id)


def test_where_only_one_is_heard_now_and_then_a_lease_that_nobody_keeps_lapses_too(open_dispatcher):
    holder, other = open_queue(open_dispatcher()), open_queue(open_dispatcher())
    holder.add([TASK])
    holder.claim("gone", 1)
    handed_on = []
    for _ in range(10):
        pass_time(other, LEASE_SECONDS / 2)
        other.heartbeat("other", b"{}", [])
        handed_on += other.claim("other", 1)

    assert [lease.attempt for lease in handed_on[:1]] == [1]
