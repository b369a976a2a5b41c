"""This file holds the queue against a model of it in plain Python: whatever happens, both say the same."""

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from redis import Redis

from agent_layer.dispatcher.queue import Queue
from agent_layer.dispatcher.records import Lease, Report
from agent_layer.schema.ids import group_id_of, new_id, rollout_id_of, trajectory_id_of
from agent_layer.schema.task import Task
from agent_layer.store.clients import open_redis
from agent_layer.store.keys import Keys

MAX_ATTEMPTS = 2
RUNS = ("r1", "r2")
FINAL = ("completed", "truncated", "cancelled", "dead")


@dataclass
class ModelRollout:
    rollout_id: str
    task: Task
    order: tuple[int, int]
    status: str = "queued"
    delayed: bool = False
    attempts: int = 0
    failures: int = 0
    token: str | None = None
    accepted: int | None = None
    said: tuple[str, str] | None = None
    """(token, ending) of the report that ended the newest lease."""


@dataclass
class Model:
    rollouts: dict[str, ModelRollout] = field(default_factory=dict)
    groups: dict[str, list[ModelRollout]] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    seq: int = 0

    def add(self, task: Task, round_index: int) -> None:
        group_id = group_id_of(task.run, task.id, round_index)
        if group_id in self.groups:
            return
        self.groups[group_id] = []
        for member in range(task.group_size):
            self.seq += 1
            rollout_id = rollout_id_of(group_id, member)
            rollout = ModelRollout(rollout_id, task, (-task.priority, self.seq))
            self.rollouts[rollout_id] = rollout
            self.groups[group_id].append(rollout)

    def claimable(self, num: int, capabilities: set[str], run: str) -> list[ModelRollout]:
        waiting = [
            rollout
            for rollout in self.rollouts.values()
            if rollout.status == "queued"
            and not rollout.delayed
            and rollout.task.run not in self.paused
            and run in ("", rollout.task.run)
            and set(rollout.task.needs) <= capabilities
        ]
        return sorted(waiting, key=lambda rollout: rollout.order)[:num]

    def settle(self, lease: Lease, ending: str) -> bool:
        rollout = self.rollouts[lease.rollout_id]
        if rollout.token != lease.token:
            return rollout.said == (lease.token, ending)
        rollout.token, rollout.said = None, (lease.token, ending)
        if ending in ("completed", "truncated"):
            rollout.status, rollout.accepted = ending, lease.attempt
        else:
            self.hand_on(rollout, counts=ending != "release", limit=1 if ending == "dead" else MAX_ATTEMPTS)
            rollout.delayed = ending == "retry" and rollout.status == "queued"
        return True

    def hand_on(self, rollout: ModelRollout, *, counts: bool, limit: int = MAX_ATTEMPTS) -> None:
        rollout.token = None
        rollout.failures += counts
        rollout.status = "dead" if rollout.failures >= limit else "queued"


class QueueMachine(RuleBasedStateMachine):
    def __init__(self, redis: Redis, settings) -> None:
        super().__init__()
        settings = settings.model_copy(update={"max_attempts": MAX_ATTEMPTS, "retry_base_seconds": 3600.0})
        self.redis, self.keys = redis, Keys(f"model-{new_id()}")
        self.queue = Queue(redis, self.keys, settings)
        self.model = Model()
        self.leases: list[Lease] = []

    @rule(
        task=st.builds(
            Task,
            id=st.sampled_from("ab"),
            run=st.sampled_from(RUNS),
            group_size=st.integers(1, 3),
            priority=st.sampled_from([-1, 0, 5]),
            needs=st.sampled_from([[], [], ["gpu", "net"]]),
        ),
        round_index=st.integers(0, 1),
    )
    def add(self, task, round_index):
        self.queue.add([task], round_index)
        self.model.add(task, round_index)

    @rule(
        num=st.integers(1, 4),
        capabilities=st.sampled_from([{"gpu", "net", "other"}, {"gpu", "net"}, {"gpu"}]),
        run=st.sampled_from(["", "", *RUNS]),
    )
    def claim(self, num, capabilities, run):
        expected = self.model.claimable(num, capabilities, run)
        leases = self.queue.claim("w", num, capabilities, run=run)
        assert [lease.rollout_id for lease in leases] == [rollout.rollout_id for rollout in expected]
        for lease, rollout in zip(leases, expected, strict=True):
            assert lease.attempt == rollout.attempts
            assert lease.task == rollout.task
            rollout.status, rollout.token, rollout.attempts = "leased", lease.token, rollout.attempts + 1
        self.leases += leases

    @precondition(lambda self: self.leases)
    @rule(choose=st.data(), ending=st.sampled_from(["completed", "truncated", "retry", "release", "dead"]))
    def settle(self, choose, ending):
        lease = choose.draw(st.sampled_from(self.leases))
        error = self.queue.settle([Report(lease=lease, ending=ending, error="user: broke")])[0]
        assert (error is None) == self.model.settle(lease, ending)

    @precondition(lambda self: self.superseded())
    @rule(choose=st.data(), ending=st.sampled_from(["completed", "retry", "release"]))
    def settle_late(self, choose, ending):
        lease = choose.draw(st.sampled_from(self.superseded()))
        error = self.queue.settle([Report(lease=lease, ending=ending, error="user: broke")])[0]
        assert (error is None) == self.model.settle(lease, ending)

    def superseded(self) -> list[Lease]:
        """Leases whose rollouts others hold by now."""
        return [one for one in self.leases if self.model.rollouts[one.rollout_id].token not in (None, one.token)]

    @precondition(lambda self: self.leases)
    @rule(choose=st.data())
    def heartbeat(self, choose):
        lease = choose.draw(st.sampled_from(self.leases))
        rollout = self.model.rollouts[lease.rollout_id]
        holds = rollout.token == lease.token
        expected = "go" if holds else "cancel" if rollout.status == "cancelled" else "lost"
        assert self.queue.heartbeat("w", b'{"slots":1}', [(lease, "running")]) == [expected]
        if holds:
            rollout.status = "running"

    @precondition(lambda self: any(rollout.token for rollout in self.model.rollouts.values()))
    @rule(choose=st.data())
    def lapse(self, choose):
        held = [rollout for rollout in self.model.rollouts.values() if rollout.token]
        rollout = choose.draw(st.sampled_from(held))
        self.redis.zadd(self.keys.queue("leases"), {rollout.rollout_id: 0}, xx=True)
        assert self.queue.reap() == 1
        self.model.hand_on(rollout, counts=True)

    @rule()
    def back_off_ends(self):
        for rollout_id in self.redis.zrange(self.keys.queue("delayed"), 0, -1):
            self.redis.zadd(self.keys.queue("delayed"), {rollout_id: 0})
            self.model.rollouts[rollout_id.decode()].delayed = False

    @precondition(lambda self: self.model.groups)
    @rule(choose=st.data())
    def cancel(self, choose):
        group_id = choose.draw(st.sampled_from(sorted(self.model.groups)))
        running = [rollout for rollout in self.model.groups[group_id] if rollout.status not in FINAL]
        assert self.queue.cancel([group_id]) == len(running)
        for rollout in running:
            rollout.status, rollout.token = "cancelled", None

    @rule(run=st.sampled_from(RUNS))
    def pause_or_resume(self, run):
        if run in self.model.paused:
            self.queue.resume(run)
        else:
            self.queue.pause(run)
        self.model.paused ^= {run}

    @invariant()
    def the_same_rollouts(self):
        group_ids = sorted(self.model.groups)
        states = self.queue.scripts.rollouts(group_ids, 100) if group_ids else []
        found = {one.rollout_id: (one.status, one.num_attempts, one.num_failures, one.accepted) for one in states}
        assert found == {
            one.rollout_id: (one.status, one.attempts, one.failures, one.accepted)
            for one in self.model.rollouts.values()
        }

    @invariant()
    def a_group_closes_once_with_all_that_was_accepted(self):
        closed = self.entries("group")
        expected = {
            group_id: ",".join(
                trajectory_id_of(one.rollout_id, one.accepted) for one in members if one.accepted is not None
            )
            for group_id, members in self.model.groups.items()
            if all(one.status in FINAL for one in members)
        }
        assert len(closed) == len(expected)
        assert {entry["group_id"]: entry["members"] for entry in closed} == expected

    @invariant()
    def a_rollout_is_accepted_at_most_once(self):
        accepted = [entry["trajectory_id"] for entry in self.entries("accepted")]
        expected = [one for one in self.model.rollouts.values() if one.accepted is not None]
        assert sorted(accepted) == sorted(trajectory_id_of(one.rollout_id, one.accepted) for one in expected)

    @invariant()
    def the_counts_are_those_of_the_rollouts(self):
        stats, rollouts = self.queue.scripts.stats(), list(self.model.rollouts.values())
        queued = [one for one in rollouts if one.status == "queued"]
        assert stats.num_queued + stats.num_delayed == len(queued)
        assert stats.num_leased == sum(one.token is not None for one in rollouts)
        assert stats.num_dead == sum(one.status == "dead" for one in rollouts)
        assert sorted(stats.paused_runs) == sorted(self.model.paused)

    def entries(self, kind: str) -> list[dict[str, str]]:
        found = [
            {k.decode(): v.decode() for k, v in fields.items()} for _, fields in self.redis.xrange(self.keys.outbox)
        ]
        return [entry for entry in found if entry["kind"] == kind]

    def teardown(self):
        names = list(self.redis.scan_iter(f"{self.keys.name()}:*", count=1000))
        if names:
            self.redis.delete(*names)


@pytest.mark.timeout(300)
def test_the_queue_does_what_its_model_does(settings):
    redis = open_redis(settings)
    run_state_machine_as_test(
        lambda: QueueMachine(redis, settings),
        settings=hypothesis_settings(
            max_examples=40,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        ),
    )
    redis.close()
