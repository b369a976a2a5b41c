"""No call of a script of the queue keeps Redis for long, however much its caller holds or ends at once.

As in test_script_times.py, what counts is the server's processor time beside that of a yardstick, so none of this needs
a machine of its own.
"""

from itertools import count

import pytest

from agent_layer.dispatcher import Dispatcher, Report
from agent_layer.schema.task import Task

from ...queues import open_queue

NUM_HELD = 5_120
NUM_WORKERS = 5_120


class Crowd:
    """Many rollouts of one run, and what their workers do with them."""

    def __init__(self, watched, keys, settings):
        self.redis, self.keys = watched, keys
        self.dispatcher = Dispatcher(
            watched, settings.model_copy(update={"stop_failure_rate": 1.0, "max_queued_rollouts": 1 << 20})
        )
        self.queue = open_queue(self.dispatcher)
        self._numbers = count()

    def add(self, num_groups=NUM_HELD // 8, **fields) -> list[str]:
        """Queue ``num_groups`` groups; return their ids."""
        fields = {"run": "r", "group_size": 8} | fields
        return self.queue.add([Task(id=f"t{next(self._numbers)}", **fields) for _ in range(num_groups)])

    def lease(self, num=NUM_HELD):
        """Lease ``num`` rollouts."""
        leases = []
        while len(leases) < num:
            leases += self.queue.claim("w", num - len(leases))
        return leases

    def lapse(self, leases) -> None:
        """Have all of these leases lapse."""
        self.redis.zadd(self.keys.queue("leases"), {lease.rollout_id: 0 for lease in leases}, xx=True)

    def end_waits(self) -> None:
        """Have all back-offs end."""
        names = self.redis.zrange(self.keys.queue("delayed"), 0, -1)
        self.redis.zadd(self.keys.queue("delayed"), dict.fromkeys(names, 0), xx=True)

    def settle(self, ending) -> list[str]:
        """Lease 512 fresh rollouts and end them with this ending; return their ids."""
        self.empty()
        self.add(64)
        leases = self.lease(512)
        assert not any(self.queue.settle([Report(lease=one, ending=ending, error="infra: away") for one in leases]))
        return [lease.rollout_id for lease in leases]

    def empty(self) -> None:
        """Cancel whatever is open."""
        self.queue.cancel(list(self.queue.views.open_ids()))


@pytest.fixture
def crowd(watched, keys, settings):
    return Crowd(watched, keys, settings)


def test_no_beat_keeps_redis_for_long_however_many_leases_a_worker_holds(watched, crowd):
    crowd.add()
    held = [(lease, "running") for lease in crowd.lease()]
    watched.assert_short({"beat": lambda: crowd.queue.heartbeat("w", b"{}", held)})

    assert set(crowd.queue.heartbeat("w", b"{}", held).leases) == {"go"}


def test_nothing_that_happens_to_many_rollouts_at_once_keeps_redis_for_long(watched, crowd):
    def lapse_all():
        crowd.empty()
        crowd.add(64)
        crowd.lapse(crowd.lease(512))
        while crowd.queue.reap():
            pass

    def end_all_waits():
        crowd.settle("retry")
        crowd.end_waits()
        crowd.queue.reap()

    watched.assert_short(
        {
            "accept": lambda: crowd.settle("completed"),
            "hand on": lambda: crowd.settle("release"),
            "lapse": lapse_all,
            "back-offs end": end_all_waits,
            "cancel": lambda: crowd.queue.cancel(crowd.add(512)),
            "retry dead": lambda: crowd.dispatcher.retry_dead(crowd.settle("dead")),
        }
    )


def test_nothing_that_is_asked_of_many_keeps_redis_for_long(watched, crowd):
    names = [f"w-{number}" for number in range(NUM_WORKERS)]
    watched.zadd(crowd.keys.queue("workers"), dict.fromkeys(names, 4e12))
    watched.hset(crowd.keys.queue("worker"), mapping=dict.fromkeys(names, "{}"))
    crowd.settle("completed")
    for number in range(128):
        crowd.add(2, run=f"run-{number}")
    watched.assert_short(
        {
            "claim of many runs": lambda: crowd.queue.claim("w", 16),
            "groups": crowd.dispatcher.groups,
            "rollouts": crowd.dispatcher.rollouts,
            "runs": crowd.dispatcher.runs,
            "workers": crowd.dispatcher.workers,
            "stats": crowd.dispatcher.stats,
            "drain": lambda: crowd.dispatcher.drain(names),
        }
    )


def test_a_claim_of_much_out_of_many_ready_sets_keeps_redis_for_what_it_takes(watched, crowd):
    names = [f"n{number}" for number in range(500)]
    for name in names:
        crowd.add(16, needs=[name])

    watched.assert_short({"claim": lambda: crowd.queue.claim("w", 256, capabilities=names)})
