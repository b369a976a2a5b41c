"""Paused attempts continue under another lease, never twice."""

import msgspec
import pytest

from agent_layer.errors import BadInputError, LeaseLostError


def start(harness, **fields):
    harness.add(**fields)
    (lease,) = harness.claim()
    harness.queue.heartbeat("w", b"{}", [(lease, "running")])
    return lease


def test_a_paused_attempt_goes_on_under_another_token_when_its_run_does(harness):
    lease = start(harness)
    harness.dispatcher.pause("r", running=True)
    assert harness.queue.heartbeat("w", b"{}", [(lease, "running")]).leases == ["pause"]
    harness.queue.checkpoint(lease, "c-1")
    assert harness.end(lease, "pause") is None

    assert harness.statuses(lease.group_id) == ["paused"]
    assert (harness.claim(), harness.run().num_paused) == ([], 1)
    harness.dispatcher.resume("r")
    (again,) = harness.claim(worker="w-2")

    assert (again.rollout_id, again.attempt, again.checkpoint) == (lease.rollout_id, lease.attempt, "c-1")
    assert again.token != lease.token
    assert "held by 'w-2'" in str(harness.end(lease))
    assert harness.end(again) is None
    assert [entry["trajectory_id"] for entry in harness.decisions("accepted")] == [lease.trajectory_id]
    assert harness.decisions("lost") == []


def test_only_running_agents_are_told_to_pause(harness):
    lease = start(harness)
    harness.dispatcher.pause("r", running=True)

    assert harness.queue.heartbeat("w", b"{}", [(lease, "scoring")]).leases == ["go"]


def test_a_running_attempt_of_a_run_that_is_only_paused_goes_on(harness):
    lease = start(harness)
    harness.dispatcher.pause("r")

    assert harness.queue.heartbeat("w", b"{}", [(lease, "running")]).leases == ["go"]


def test_pausing_without_a_checkpoint_begins_anew(harness):
    lease = start(harness)
    harness.end(lease, "pause")

    (again,) = harness.claim()
    assert (again.attempt, again.checkpoint) == (1, None)


def test_after_a_death_the_attempt_goes_on_from_its_checkpoint_and_is_not_lost(harness):
    lease = start(harness)
    harness.queue.checkpoint(lease, "c-1")
    assert harness.queue.checkpoint(lease, "c-2") == "c-1"
    harness.lapse(lease)

    (again,) = harness.claim()
    assert (again.attempt, again.checkpoint) == (0, "c-2")
    assert harness.decisions("lost") == []
    (state,) = harness.dispatcher.rollouts([lease.group_id])
    assert (state.num_attempts, state.num_failures) == (1, 1)


def test_an_attempt_that_failed_begins_anew(harness):
    lease = start(harness)
    harness.queue.checkpoint(lease, "c-1")
    harness.end(lease, "retry")

    (again,) = harness.claim()
    assert (again.attempt, again.checkpoint) == (1, None)


def test_who_lost_the_lease_notes_no_checkpoint(harness):
    lease = start(harness)
    harness.lapse(lease)

    with pytest.raises(LeaseLostError, match="queued again"):
        harness.queue.checkpoint(lease, "c-late")
    (again,) = harness.claim()
    assert again.checkpoint is None


def test_every_holder_of_one_attempt_keeps_its_error(harness):
    lease = start(harness)
    harness.queue.checkpoint(lease, "c-1")
    harness.end(lease, "release", error="infra: the worker stopped")
    (again,) = harness.claim()
    harness.end(again, "retry", error="user: broke")

    (state,) = harness.dispatcher.rollouts([lease.group_id])
    assert state.errors == ["infra: the worker stopped", "user: broke"]


@pytest.mark.parametrize("ending", ["pause", "release"])
def test_what_an_attempt_took_is_the_time_that_it_ran_and_not_that_it_was_paused(harness, ending):
    lease = start(harness)
    harness.redis.hincrby(harness.keys.queue("r", lease.rollout_id), "began", -600_000)  # it has run for ten minutes
    harness.queue.checkpoint(lease, "c-1")
    harness.end(lease, ending)
    for field in ("began", "queued_at", "at"):
        harness.redis.hincrby(harness.keys.queue("r", lease.rollout_id), field, -3_600_000)  # paused for an hour
    (again,) = harness.claim()
    harness.end(again)

    assert harness.group(lease.group_id).kept_seconds == pytest.approx(600, abs=60)


def test_an_attempt_that_is_paused_when_its_rollout_is_cancelled_is_ended(harness):
    lease = start(harness)
    harness.queue.checkpoint(lease, "c-1")
    harness.end(lease, "pause")
    harness.queue.cancel([lease.group_id])

    assert [entry["trajectory_id"] for entry in harness.decisions("cancelled")] == [lease.trajectory_id]


def test_a_cancelled_attempt_whose_worker_may_be_dead_is_ended_when_its_lease_would_lapse(harness):
    lease = start(harness)
    harness.queue.cancel([lease.group_id])
    harness.queue.reap()
    assert harness.decisions("cancelled") == []  # its worker reports the rest, if it still runs

    harness.redis.zadd(harness.keys.queue("parting"), {lease.rollout_id: 0}, xx=True)
    harness.queue.reap()
    harness.queue.reap()

    assert [entry["trajectory_id"] for entry in harness.decisions("cancelled")] == [lease.trajectory_id]


def test_an_attempt_that_dies_with_its_worker_for_the_last_time_is_lost_whatever_it_saved(harness):
    lease = start(harness)
    harness.queue.checkpoint(lease, "c-1")
    for _ in range(harness.queue.settings.max_attempts - 1):
        harness.lapse(lease)
        (lease,) = harness.claim()
    assert harness.decisions("lost") == []
    harness.lapse(lease)

    assert [entry["trajectory_id"] for entry in harness.decisions("lost")] == [lease.trajectory_id]


def test_who_tries_the_dead_again_begins_anew(harness):
    lease = start(harness, group_size=2)
    harness.queue.checkpoint(lease, "c-1")
    for _ in range(harness.queue.settings.max_attempts - 1):
        harness.lapse(lease)
        (lease,) = harness.claim()
    harness.lapse(lease)
    harness.dispatcher.retry_dead([lease.rollout_id])
    (again,) = harness.claim()

    assert [entry["trajectory_id"] for entry in harness.decisions("lost")] == [lease.trajectory_id]
    assert (again.rollout_id, again.attempt, again.checkpoint) == (lease.rollout_id, lease.attempt + 1, None)


def test_an_empty_token_holds_nothing(harness):
    lease = start(harness)
    harness.end(lease, "release")
    nobody = msgspec.structs.replace(lease, token="")

    assert "queued again" in str(harness.end(nobody))
    assert harness.queue.heartbeat("w", b"{}", [(nobody, "running")]).leases == ["lost"]
    with pytest.raises(LeaseLostError):
        harness.queue.checkpoint(nobody, "c")
    assert harness.decisions("accepted") == []


def test_a_pause_for_a_while_ends_for_its_own_reason_alone(harness):
    start(harness)
    assert harness.dispatcher.begin_pause("r", "new weights")
    assert not harness.dispatcher.begin_pause("r", "something else")
    assert not harness.dispatcher.end_pause("r", "something else")
    assert harness.dispatcher.end_pause("r", "new weights")
    assert not harness.dispatcher.end_pause("r", "new weights")

    harness.dispatcher.pause("r", why="mine")
    for call in (harness.dispatcher.begin_pause, harness.dispatcher.end_pause):
        with pytest.raises(BadInputError, match="expected a reason"):
            call("r", "")
    assert harness.run().paused == "mine"
