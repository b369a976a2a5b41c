"""This file holds what becomes of leases while Redis hears nobody: no worker loses one for that."""

import signal
import threading
import time
from collections.abc import Callable

import pytest
from redis import Redis

from agent_layer.dispatcher import Dispatcher
from agent_layer.schema.task import Task

LEASE_SECONDS = 1.0


@pytest.fixture
def dispatcher_of(settings, own_redis):
    """``dispatcher_of()``: the dispatcher as one more process sees it."""
    changes = {"redis_url": own_redis.url, "lease_seconds": LEASE_SECONDS, "heartbeat_seconds": LEASE_SECONDS / 2}
    mine = settings.model_copy(update=changes)

    def connect():
        return Dispatcher(Redis.from_url(own_redis.url), mine)

    return connect


FIRST_HEARD: dict[str, Callable[[Dispatcher], object]] = {
    "a claim": lambda other: other.queue.claim("other", 1),
    "a claim that waits": lambda other: other.queue.claim("other", 1, wait_seconds=1.2),
    "a heartbeat": lambda other: (other.queue.heartbeat("other", b"{}", []), other.queue.claim("other", 1)),
    "a worker that listens": lambda other: (other.queue.listen("other", "0-0", 0.1), other.queue.claim("other", 1)),
    "who waits for groups": lambda other: other.wait(timeout=1.2),
}


@pytest.mark.parametrize("first", FIRST_HEARD.values(), ids=FIRST_HEARD)
def test_leases_that_lapse_while_redis_hears_nobody_stay_with_their_workers(dispatcher_of, own_redis, first):
    holder, other = dispatcher_of().queue, dispatcher_of()
    holder.add([Task(id="t", run="r", input=1)])
    (lease,) = holder.claim("holder", 1)
    assert other.queue.claim("other", 1) == []

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
    holder, other = dispatcher_of().queue, dispatcher_of().queue
    holder.add([Task(id="t", run="r", input=1)])
    holder.claim("gone", 1)
    assert other.claim("other", 1) == []
    own_redis.send(signal.SIGSTOP)
    threading.Timer(1.5 * LEASE_SECONDS, own_redis.send, [signal.SIGCONT]).start()

    assert other.claim("other", 1) == []
    (lease,) = other.claim("other", 1, wait_seconds=5 * LEASE_SECONDS)
    assert lease.attempt == 1
