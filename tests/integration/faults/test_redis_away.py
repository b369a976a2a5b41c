"""Leases during a Redis outage: no worker loses one because of it."""

import signal
import threading
import time
from collections.abc import Callable

import pytest
from redis import Redis

from agent_layer.dispatcher import Dispatcher
from agent_layer.schema.task import Task

from ...queues import queue_of

LEASE_SECONDS = 1.0


@pytest.fixture
def dispatcher_of(settings, own_redis):
    """``dispatcher_of()``: the dispatcher as one more process sees it."""
    usual = {"redis_url": own_redis.url, "lease_seconds": LEASE_SECONDS, "heartbeat_seconds": LEASE_SECONDS / 2}

    def connect(**changes):
        return Dispatcher(Redis.from_url(own_redis.url), settings.model_copy(update=usual | changes))

    return connect


FIRST_HEARD: dict[str, Callable[[Dispatcher], object]] = {
    "a claim": lambda other: queue_of(other).claim("other", 1),
    "a claim that waits": lambda other: queue_of(other).claim("other", 1, wait_seconds=1.2),
    "a heartbeat": lambda other: (queue_of(other).heartbeat("other", b"{}", []), queue_of(other).claim("other", 1)),
    "a worker that listens": lambda other: (
        queue_of(other).listen("other", "0-0", 0.1),
        queue_of(other).claim("other", 1),
    ),
    "who waits for groups": lambda other: other.wait(timeout=1.2),
}


@pytest.mark.parametrize("first", FIRST_HEARD.values(), ids=FIRST_HEARD)
def test_leases_that_lapse_while_redis_hears_nobody_stay_with_their_workers(dispatcher_of, own_redis, first):
    holder, other = queue_of(dispatcher_of()), dispatcher_of()
    holder.add([Task(id="t", run="r", input=1)])
    (lease,) = holder.claim("holder", 1)
    assert queue_of(other).claim("other", 1) == []

    asking = threading.Thread(target=first, args=[other])
    asking.start()
    own_redis.send(signal.SIGSTOP)  # before it asks, or while it waits
    time.sleep(1.5 * LEASE_SECONDS)  # nothing can be asked meanwhile
    own_redis.send(signal.SIGCONT)
    asking.join()

    assert holder.heartbeat("holder", b"{}", [(lease, "running")]).leases == ["go"]
    (rollout,) = holder.views.rollouts([], 10)
    assert (rollout.status, rollout.errors) == ("running", [])


def test_a_lease_that_nobody_keeps_lapses_also_after_redis_was_away(dispatcher_of, own_redis):
    holder, other = queue_of(dispatcher_of()), queue_of(dispatcher_of())
    holder.add([Task(id="t", run="r", input=1)])
    holder.claim("gone", 1)
    assert other.claim("other", 1) == []
    own_redis.send(signal.SIGSTOP)
    threading.Timer(1.5 * LEASE_SECONDS, own_redis.send, [signal.SIGCONT]).start()

    assert other.claim("other", 1) == []
    (lease,) = other.claim("other", 1, wait_seconds=30)
    assert lease.attempt == 1


def be_silent_until_it_runs_out(hold, other, shelf):
    """From shortly before the next heartbeat on: half a lease, and a little; return the lease that ``hold()`` gave."""
    seconds = other.settings.lease_seconds
    for _ in range(10):
        lease = hold()
        while (left := seconds_left(other, shelf, lease)) > 0.48 * seconds:
            other.heartbeat("other", b"{}", [])
            time.sleep(0.01)
        if left > 0.4 * seconds:  # else this machine was away
            time.sleep(left + 0.05 * seconds)
            return lease
    raise AssertionError("expected to be called in time once, found a machine that is too busy")


def seconds_left(queue, shelf, lease):
    now, micros = queue.redis.time()
    return queue.redis.zscore(queue.keys.queue(shelf), lease.rollout_id) / 1000 - now - micros / 1e6


def test_a_silence_of_little_more_than_a_heartbeat_costs_no_lease(dispatcher_of):
    holder, other = (queue_of(dispatcher_of(lease_seconds=3.0, heartbeat_seconds=1.5)) for _ in range(2))
    holder.add([Task(id="t", run="r")])
    (lease,) = holder.claim("holder", 1)

    def keep():
        return holder.heartbeat("holder", b"{}", [(lease, "running")]) and lease

    be_silent_until_it_runs_out(keep, other, "leases")

    assert other.claim("other", 1) == []
    assert holder.heartbeat("holder", b"{}", [(lease, "running")]).leases == ["go"]


def test_who_was_cancelled_while_redis_heard_nobody_can_still_say_how_it_ended(dispatcher_of):
    holder, other = (queue_of(dispatcher_of(lease_seconds=3.0, heartbeat_seconds=1.5)) for _ in range(2))

    def lose():
        (group_id,) = holder.add([Task(id="t", run="r")], next(rounds))
        (lease,) = holder.claim("holder", 1)
        holder.cancel([group_id])
        return lease

    rounds = iter(range(10))
    lease = be_silent_until_it_runs_out(lose, other, "parting")

    assert other.claim("other", 1) == []
    assert holder.redis.zscore(holder.keys.queue("parting"), lease.rollout_id)


def test_where_only_one_is_heard_now_and_then_a_lease_that_nobody_keeps_lapses_too(dispatcher_of):
    holder, other = queue_of(dispatcher_of()), queue_of(dispatcher_of())
    holder.add([Task(id="t", run="r", input=1)])
    holder.claim("gone", 1)
    handed_on = []
    for _ in range(10):
        time.sleep(LEASE_SECONDS / 2)
        other.heartbeat("other", b"{}", [])
        handed_on += other.claim("other", 1)

    assert [lease.attempt for lease in handed_on[:1]] == [1]
