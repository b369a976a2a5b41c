"""An answer of Redis that is lost on its way: the client repeats its request, and no work is done or counted twice."""

import pytest

from agent_layer.dispatcher import Dispatcher, Report, WorkerQueue, connect
from agent_layer.errors import UnreachableError
from agent_layer.infra import open_redis
from agent_layer.schema import Task

from ...waiting import scaled


@pytest.fixture
def proxy(start_redis, free_port, make_proxy):
    start_redis("carried", "--port", str(free_port))
    return make_proxy(("127.0.0.1", free_port))


@pytest.fixture
def lossy(settings, keys, proxy):
    """Queue and dispatcher, over a client whose answers the proxy loses."""
    mine = settings.model_copy(update={"redis_url": f"redis://127.0.0.1:{proxy.port}", "retry_seconds": scaled(30.0)})
    with open_redis(mine) as redis:
        yield WorkerQueue(redis, keys, mine), Dispatcher(redis, mine)


def lose_answers(proxy, num, after):
    proxy.mood, proxy.num_spoils_left, proxy.spoils_after = "loses", num, after


@pytest.mark.parametrize("num_lost", [1, 2])
def test_a_claim_whose_answer_is_lost_costs_no_attempt(proxy, lossy, num_lost):
    queue, dispatcher = lossy
    assert queue.claim("w", 1) == []  # the server knows the script from now on
    group_ids = dispatcher.submit([Task(id=f"t{number}", run="r", input=1) for number in range(3)])
    lose_answers(proxy, num_lost, b"EVALSHA")

    leases = queue.claim("w", 2)

    assert proxy.num_spoiled == num_lost
    assert [lease.attempt for lease in leases] == [0, 0]
    assert sorted(one.status for one in dispatcher.rollouts(group_ids)) == ["leased", "leased", "queued"]
    assert queue.settle([Report(lease=lease, ending="completed") for lease in leases]) == [None, None]
    assert [lease.attempt for lease in queue.claim("w", 2)] == [0]


def test_a_lost_answer_to_a_retry_of_dead_rollouts_reports_what_was_done(proxy, lossy):
    queue, dispatcher = lossy
    (group_id,) = dispatcher.submit([Task(id="t", run="r", input=1, group_size=2)])
    dead, _ = queue.claim("w", 2)
    queue.settle([Report(lease=dead, ending="dead", error="user: no")])
    dispatcher.retry_dead([dead.rollout_id])  # the server knows the script from now on
    (lease,) = queue.claim("w", 1)
    queue.settle([Report(lease=lease, ending="dead", error="user: no")])
    lose_answers(proxy, 1, b"retry")

    assert dispatcher.retry_dead([dead.rollout_id]) == [group_id]
    assert proxy.num_spoiled == 1
    assert dispatcher.dead() == []


def test_a_submit_that_fails_halfway_says_how_many_tasks_are_queued_and_goes_on_when_repeated(proxy, lossy, settings):
    tasks = [Task(id=f"t{number}", run="r", input=1) for number in range(300)]
    hasty = settings.model_copy(update={"redis_url": f"redis://127.0.0.1:{proxy.port}", "retry_seconds": 1.0})
    lossy[1].submit([Task(id="before", run="r", input=1)])  # the server knows the script from now on
    lose_answers(proxy, None, b"t299")

    with (
        connect(hasty) as dispatcher,
        pytest.raises(
            UnreachableError, match=r"submit: 256 of 300 tasks.* are known to be queued.*; submit all of them"
        ),
    ):
        dispatcher.submit(tasks)
    proxy.mood = None

    assert len(set(lossy[1].submit(tasks))) == 300
    assert lossy[1].stats().num_queued == 301
