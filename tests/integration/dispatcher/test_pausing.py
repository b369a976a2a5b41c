"""Paused attempts continue under another lease, never twice."""

import msgspec
import pytest

from agent_layer.errors import BadInputError, LeaseLostError


def start(desk, **fields):
    desk.add(**fields)
    (lease,) = desk.claim()
    desk.queue.heartbeat("w", b"{}", [(lease, "running")])
    return lease


def test_a_paused_attempt_goes_on_under_another_token_when_its_run_does(desk):
    lease = start(desk)
    desk.dispatcher.pause("r", running=True)
    assert desk.queue.heartbeat("w", b"{}", [(lease, "running")]).leases == ["pause"]
    desk.queue.checkpoint(lease, "c-1")
    assert desk.end(lease, "pause") is None

    assert desk.statuses(lease.group_id) == ["paused"]
    assert (desk.claim(), desk.run().num_paused) == ([], 1)
    desk.dispatcher.resume("r")
    (again,) = desk.claim(worker="w-2")

    assert (again.rollout_id, again.attempt, again.checkpoint) == (lease.rollout_id, lease.attempt, "c-1")
    assert again.token != lease.token
    assert "held by 'w-2'" in str(desk.end(lease))
    assert desk.end(again) is None
    assert [entry["trajectory_id"] for entry in desk.decisions("accepted")] == [lease.trajectory_id]
    assert desk.decisions("lost") == []


def test_only_running_agents_are_told_to_pause(desk):
    lease = start(desk)
    desk.dispatcher.pause("r", running=True)

    assert desk.queue.heartbeat("w", b"{}", [(lease, "scoring")]).leases == ["go"]


def test_a_running_attempt_of_a_run_that_is_only_paused_goes_on(desk):
    lease = start(desk)
    desk.dispatcher.pause("r")

    assert desk.queue.heartbeat("w", b"{}", [(lease, "running")]).leases == ["go"]


def test_pausing_without_a_checkpoint_begins_anew(desk):
    lease = start(desk)
    desk.end(lease, "pause")

    (again,) = desk.claim()
    assert (again.attempt, again.checkpoint) == (1, None)


def test_after_a_death_the_attempt_goes_on_from_its_checkpoint_and_is_not_lost(desk):
    lease = start(desk)
    desk.queue.checkpoint(lease, "c-1")
    assert desk.queue.checkpoint(lease, "c-2") == "c-1"
    desk.lapse(lease)

    (again,) = desk.claim()
    assert (again.attempt, again.checkpoint) == (0, "c-2")
    assert desk.decisions("lost") == []
    (state,) = desk.dispatcher.rollouts([lease.group_id])
    assert (state.num_attempts, state.num_failures) == (1, 1)


def test_an_attempt_that_failed_begins_anew(desk):
    lease = start(desk)
    desk.queue.checkpoint(lease, "c-1")
    desk.end(lease, "retry")

    (again,) = desk.claim()
    assert (again.attempt, again.checkpoint) == (1, None)


def test_who_lost_the_lease_notes_no_checkpoint(desk):
    lease = start(desk)
    desk.lapse(lease)

    with pytest.raises(LeaseLostError, match="queued again"):
        desk.queue.checkpoint(lease, "c-late")
    (again,) = desk.claim()
    assert again.checkpoint is None


def test_every_holder_of_one_attempt_keeps_its_error(desk):
    lease = start(desk)
    desk.queue.checkpoint(lease, "c-1")
    desk.end(lease, "release", error="infra: the worker stopped")
    (again,) = desk.claim()
    desk.end(again, "retry", error="user: broke")

    (state,) = desk.dispatcher.rollouts([lease.group_id])
    assert state.errors == ["infra: the worker stopped", "user: broke"]


@pytest.mark.parametrize("ending", ["pause", "release"])
def test_what_an_attempt_took_is_the_time_that_it_ran_and_not_that_it_was_paused(desk, ending):
    lease = start(desk)
    desk.redis.hincrby(desk.keys.queue("r", lease.rollout_id), "began", -600_000)  # it has run for ten minutes
    desk.queue.checkpoint(lease, "c-1")
    desk.end(lease, ending)
    for field in ("began", "queued_at", "at"):
        desk.redis.hincrby(desk.keys.queue("r", lease.rollout_id), field, -3_600_000)  # and was paused for an hour
    (again,) = desk.claim()
    desk.end(again)

    assert desk.group(lease.group_id).kept_seconds == pytest.approx(600, abs=60)


def test_an_attempt_that_is_paused_when_its_rollout_is_cancelled_is_ended(desk):
    lease = start(desk)
    desk.queue.checkpoint(lease, "c-1")
    desk.end(lease, "pause")
    desk.queue.cancel([lease.group_id])

    assert [entry["trajectory_id"] for entry in desk.decisions("cancelled")] == [lease.trajectory_id]


def test_a_cancelled_attempt_whose_worker_may_be_dead_is_ended_when_its_lease_would_lapse(desk):
    lease = start(desk)
    desk.queue.cancel([lease.group_id])
    desk.queue.reap()
    assert desk.decisions("cancelled") == []  # its worker reports the rest, if it still runs

    desk.redis.zadd(desk.keys.queue("parting"), {lease.rollout_id: 0}, xx=True)
    desk.queue.reap()
    desk.queue.reap()

    assert [entry["trajectory_id"] for entry in desk.decisions("cancelled")] == [lease.trajectory_id]


def test_an_attempt_that_dies_with_its_worker_for_the_last_time_is_lost_whatever_it_saved(desk):
    lease = start(desk)
    desk.queue.checkpoint(lease, "c-1")
    for _ in range(desk.queue.settings.max_attempts - 1):
        desk.lapse(lease)
        (lease,) = desk.claim()
    assert desk.decisions("lost") == []
    desk.lapse(lease)

    assert [entry["trajectory_id"] for entry in desk.decisions("lost")] == [lease.trajectory_id]


def test_who_tries_the_dead_again_begins_anew(desk):
    lease = start(desk, group_size=2)
    desk.queue.checkpoint(lease, "c-1")
    for _ in range(desk.queue.settings.max_attempts - 1):
        desk.lapse(lease)
        (lease,) = desk.claim()
    desk.lapse(lease)
    desk.dispatcher.retry_dead([lease.rollout_id])
    (again,) = desk.claim()

    assert [entry["trajectory_id"] for entry in desk.decisions("lost")] == [lease.trajectory_id]
    assert (again.rollout_id, again.attempt, again.checkpoint) == (lease.rollout_id, lease.attempt + 1, None)


def test_an_empty_token_holds_nothing(desk):
    lease = start(desk)
    desk.end(lease, "release")
    nobody = msgspec.structs.replace(lease, token="")

    assert "queued again" in str(desk.end(nobody))
    assert desk.queue.heartbeat("w", b"{}", [(nobody, "running")]).leases == ["lost"]
    with pytest.raises(LeaseLostError):
        desk.queue.checkpoint(nobody, "c")
    assert desk.decisions("accepted") == []


def test_a_pause_for_a_while_ends_for_its_own_reason_alone(desk):
    start(desk)
    assert desk.dispatcher.begin_pause("r", "new weights")
    assert not desk.dispatcher.begin_pause("r", "something else")
    assert not desk.dispatcher.end_pause("r", "something else")
    assert desk.dispatcher.end_pause("r", "new weights")
    assert not desk.dispatcher.end_pause("r", "new weights")

    desk.dispatcher.pause("r", why="mine")
    for call in (desk.dispatcher.begin_pause, desk.dispatcher.end_pause):
        with pytest.raises(BadInputError, match="expected a reason"):
            call("r", "")
    assert desk.run().paused == "mine"
