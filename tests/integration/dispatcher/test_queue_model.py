"""The queue against a model in plain Python: after any sequence of events both agree."""

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings as hypothesis_settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from redis import Redis

from agent_layer.dispatcher import LEASE_SCRIPTS, SUBMIT_SCRIPTS
from agent_layer.dispatcher.models import Lease, Report
from agent_layer.errors import LeaseLostError
from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.keys import Keys
from agent_layer.schema.ids import make_trajectory_id, new_id
from agent_layer.schema.task import Task

from ...profiles import num_examples
from ...queues import Queue
from .moves import MOVES
from .queue_model import MAX_ATTEMPTS, Model, holds

RUNS = ("r1", "r2", "r3", "group:r4")
SIZES = st.sampled_from([(1, None), (2, None), (3, None), (1, 3), (2, 3)])


class QueueMachine(RuleBasedStateMachine):
    def __init__(self, redis: Redis, settings) -> None:
        super().__init__()
        never = {"max_attempts": MAX_ATTEMPTS, "retry_base_seconds": 3600.0, "stop_failure_rate": 1.0}
        self.redis, self.keys = redis, Keys(f"model-{new_id()}")
        self.queue = Queue(redis, self.keys, settings.model_copy(update=never))
        self.model = Model()
        self.leases: list[Lease] = []

    @rule(
        sizes=SIZES,
        task=st.builds(
            Task,
            id=st.sampled_from("ab"),
            run=st.sampled_from(RUNS),
            partial=st.sampled_from(["deliver", "refill", "drop"]),
            priority=st.sampled_from([-1, 0, 0, 5]),
            needs=st.sampled_from([[], [], ["gpu", "net"]]),
            from_policy=st.sampled_from([None, None, 0, 2]),
        ),
        round_index=st.integers(0, 1),
    )
    def add(self, sizes, task, round_index):
        request = msgspec.structs.replace(task, group_size=sizes[0], launch=sizes[1])
        self.queue.add([request], round_index)
        self.model.add(request, round_index)

    @rule(
        num=st.integers(1, 4),
        capabilities=st.sampled_from([{"gpu", "net", "other"}, {"gpu", "net"}, {"gpu"}]),
        run=st.sampled_from(["", "", *RUNS]),
    )
    def claim(self, num, capabilities, run):
        leases = self.queue.claim("w", num, capabilities, run=run)
        expected = self.model.claim(num, capabilities, run)
        assert [lease.rollout_id for lease in leases] == [rollout.rollout_id for rollout in expected]
        for lease, rollout in zip(leases, expected, strict=True):
            assert (lease.attempt, lease.checkpoint) == (rollout.attempts - 1, rollout.checkpoint)
            assert lease.task == rollout.task
            rollout.token = lease.token
        self.leases += leases

    @precondition(lambda self: self.leases)
    @rule(
        choose=st.data(),
        ending=st.sampled_from(["completed", "completed", "truncated", "pause", "retry", "release", "dead"]),
        usable=st.sampled_from([True, True, False]),
    )
    def settle(self, choose, ending, usable):
        lease = choose.draw(st.sampled_from(self.leases))
        report = Report(lease=lease, ending=ending, error="user: broke", usable=usable)
        assert (self.queue.settle([report])[0] is None) == self.model.settle(lease, ending, usable=usable)

    @precondition(lambda self: self.superseded())
    @rule(choose=st.data(), ending=st.sampled_from(["completed", "pause", "retry", "release"]))
    def settle_late(self, choose, ending):
        lease = choose.draw(st.sampled_from(self.superseded()))
        error = self.queue.settle([Report(lease=lease, ending=ending, error="user: broke")])[0]
        assert (error is None) == self.model.settle(lease, ending)

    def superseded(self) -> list[Lease]:
        """Leases whose rollouts others hold by now."""
        return [one for one in self.leases if self.model.rollouts[one.rollout_id].token not in (None, one.token)]

    @precondition(lambda self: self.leases)
    @rule(choose=st.data(), status=st.sampled_from(["running", "running", "scoring", "sealing"]))
    def heartbeat(self, choose, status):
        lease = choose.draw(st.sampled_from(self.leases))
        rollout = self.model.rollouts[lease.rollout_id]
        expected = "cancel" if rollout.status == "cancelled" else "lost"
        if holds(rollout, lease):
            expected = "pause" if status == "running" and rollout.task.run in self.model.pausing else "go"
            if status in MOVES[rollout.status]:
                rollout.move(status)
        assert self.queue.heartbeat("w", b'{"slots":1}', [(lease, status)]).leases == [expected]

    @precondition(lambda self: self.leases)
    @rule(choose=st.data(), name=st.sampled_from(["c1", "c2"]))
    def checkpoint(self, choose, name):
        lease = choose.draw(st.sampled_from(self.leases))
        rollout = self.model.rollouts[lease.rollout_id]
        if not holds(rollout, lease):
            with pytest.raises(LeaseLostError):
                self.queue.checkpoint(lease, name)
            return
        before = rollout.checkpoint if rollout.checkpoint != name else None
        assert self.queue.checkpoint(lease, name) == before
        rollout.checkpoint = name

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
        assert self.queue.cancel([group_id]) == self.model.cancel_group(group_id)

    @precondition(lambda self: self.model.rollouts)
    @rule(choose=st.data())
    def retry_dead(self, choose):
        rollout = self.model.rollouts[choose.draw(st.sampled_from(sorted(self.model.rollouts)))]
        assert self.queue.scripts.retry_dead([rollout.rollout_id]) == [self.model.retry_dead(rollout)]

    @rule(run=st.sampled_from(RUNS), leased_too=st.booleans())
    def pause_or_resume(self, run, leased_too):
        if run in self.model.paused_runs:
            self.queue.resume(run)
            self.model.pausing.discard(run)
        else:
            self.queue.pause(run, leased_too=leased_too)
            self.model.pausing |= {run} if leased_too else set()
        self.model.paused_runs ^= {run}

    @rule(run=st.sampled_from(RUNS), weight=st.sampled_from([1, 2, 4]), quota=st.sampled_from([0, 1, 3]))
    def share(self, run, weight, quota):
        self.queue.scripts.share(run, weight, quota)
        self.model.weights[run] = weight
        self.model.quotas |= {run: quota or 10**9}

    @rule(run=st.sampled_from(RUNS), version=st.integers(0, 3))
    def publish(self, run, version):
        self.redis.hset(self.keys.policies(run), str(version), b"a version")
        self.model.newest_policy[run] = max(version, self.model.newest_policy.get(run, -1))

    @invariant()
    def the_same_rollouts(self):
        group_ids = sorted(self.model.groups)
        states = self.queue.views.rollouts(group_ids, 100) if group_ids else []
        found = {one.rollout_id: (one.status, one.num_attempts, one.num_failures, one.accepted) for one in states}
        assert found == {
            one.rollout_id: (one.status, one.attempts, one.failures, one.accepted)
            for one in self.model.rollouts.values()
        }

    @invariant()
    def a_group_closes_once_with_all_that_was_accepted(self):
        closed = self.entries("group")
        expected = {
            group_id: ",".join(group.closed_with)
            for group_id, group in self.model.groups.items()
            if group.closed_with is not None
        }
        assert len(closed) == len(expected)
        assert {entry["group_id"]: entry["members"] for entry in closed} == expected
        for entry in closed:
            assert int(entry["num_usable"]) == self.model.groups[entry["group_id"]].usable
            is_whole = int(entry["num_usable"]) >= int(entry["group_size"])
            assert (entry["fill"] == "whole") == is_whole

    @invariant()
    def a_rollout_is_accepted_at_most_once(self):
        accepted = [entry["trajectory_id"] for entry in self.entries("accepted")]
        expected = [one for one in self.model.rollouts.values() if one.accepted is not None]
        assert sorted(accepted) == sorted(make_trajectory_id(one.rollout_id, one.accepted) for one in expected)

    @invariant()
    def only_what_cannot_go_on_is_lost(self):
        lost = {entry["trajectory_id"] for entry in self.entries("lost")}
        going_on = [one for one in self.model.rollouts.values() if one.checkpoint and not one.is_over]
        assert lost.isdisjoint(make_trajectory_id(one.rollout_id, one.attempts - 1) for one in going_on)

    @invariant()
    def the_counts_are_those_of_the_rollouts(self):
        stats, rollouts = self.queue.views.stats(), list(self.model.rollouts.values())
        queued = [one for one in rollouts if one.status == "queued"]
        assert stats.num_queued + stats.num_delayed == len(queued)
        assert stats.num_paused == sum(one.status == "paused" for one in rollouts)
        assert stats.num_leased == sum(one.token is not None for one in rollouts)
        assert stats.num_dead == sum(one.status == "dead" for one in rollouts)
        assert stats.num_open_groups == sum(group.closed_with is None for group in self.model.groups.values())
        assert sorted(stats.paused_runs) == sorted(self.model.paused_runs)

    @invariant()
    def the_books_are_those_of_the_rollouts(self):
        for state in self.queue.views.runs([]):
            mine = [one for one in self.model.rollouts.values() if one.task.run == state.run]
            assert state.num_leased == self.model.num_leased(state.run)
            assert state.num_accepted == sum(one.accepted is not None for one in mine)
            assert state.num_dead == sum(one.status == "dead" for one in mine)
            assert state.num_queued + state.num_delayed == sum(one.status == "queued" for one in mine)
            assert state.num_cancelled + state.num_surplus == sum(one.status == "cancelled" for one in mine)

    def entries(self, kind: str) -> list[dict[str, str]]:
        found = [
            {k.decode(): v.decode() for k, v in fields.items()} for _, fields in self.redis.xrange(self.keys.outbox)
        ]
        return [entry for entry in found if entry["kind"] == kind]

    def teardown(self):
        names = list(self.redis.scan_iter(f"{self.keys.name()}:*", count=1000))
        if names:
            self.redis.delete(*names)


@pytest.mark.parametrize("budget", [150, 2])
def test_the_queue_does_what_its_model_does(settings, monkeypatch, budget):
    """Also where each script does so little that large steps take many."""
    for script in {*LEASE_SCRIPTS, *SUBMIT_SCRIPTS}:
        monkeypatch.setitem(script.__dict__, "text", script.text.replace("budget = 150", f"budget = {budget}"))
    redis = open_redis(settings)
    run_state_machine_as_test(
        lambda: QueueMachine(redis, settings),
        settings=hypothesis_settings(
            max_examples=num_examples(30),
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        ),
    )
    redis.close()
