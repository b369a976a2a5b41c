"""A trainer's control of its run: its own pauses end, others' stay, and each has a reason."""

import pytest

from agent_layer.dispatcher import connect
from agent_layer.dispatcher.models import Report
from agent_layer.engines.policies import register_policy
from agent_layer.errors import EngineError
from agent_layer.schema.task import Task
from agent_layer.schema.training import PolicyVersion
from trainer_adapter.loop.run_control import RunControl

from ...queues import open_queue


@pytest.fixture
def dispatcher(settings):
    return connect(settings.model_copy(update={"stop_failure_window": 2}))


@pytest.fixture
def standing(dispatcher):
    return RunControl("r", dispatcher, pause_at_switch=True)


@pytest.fixture(autouse=True)
def group(dispatcher):
    (group_id,) = dispatcher.submit([Task(id="t", run="r", group_size=3)])
    return group_id


def why_paused(dispatcher):
    return dispatcher.runs(["r"])[0].paused


def test_an_attempt_that_can_pause_does_so_at_a_switch_and_goes_on_after_it(dispatcher, standing):
    queue = open_queue(dispatcher)
    (lease,) = queue.claim("w", 1)
    queue.checkpoint(lease, "here")
    queue.heartbeat("w", b"{}", [(lease, "running")])

    with standing.pause_for_switch(1):
        assert queue.heartbeat("w", b"{}", [(lease, "running")]).leases == ["pause"]
        assert queue.settle([Report(lease=lease, ending="pause")]) == [None]
        assert queue.claim("w", 3) == []

    resumed = next(one for one in queue.claim("w", 3) if one.rollout_id == lease.rollout_id)
    assert (resumed.attempt, resumed.checkpoint) == (lease.attempt, "here")
    assert resumed.token != lease.token


def test_a_run_goes_on_also_when_the_switch_fails(dispatcher, standing):
    def fail():
        assert "new weights" in why_paused(dispatcher)
        raise EngineError("full")

    with pytest.raises(EngineError), standing.pause_for_switch(1):
        fail()

    assert why_paused(dispatcher) is None


def test_what_others_paused_before_or_in_a_switch_stays_paused(dispatcher, standing):
    with standing.pause_for_switch(1):
        dispatcher.pause("r", why="by hand")
    assert why_paused(dispatcher) == "by hand"

    with standing.pause_for_switch(2):
        assert why_paused(dispatcher) == "by hand"
    assert why_paused(dispatcher) == "by hand"


def test_a_pause_that_a_killed_trainer_left_ends_when_it_starts_again(dispatcher, standing):
    killed = standing.pause_for_switch(1)
    killed.__enter__()
    assert why_paused(dispatcher)

    RunControl("r", dispatcher, pause_at_switch=False)

    assert why_paused(dispatcher) is None


def test_failures_before_a_pause_still_count_after_it(dispatcher, standing):
    queue = open_queue(dispatcher)
    leases = queue.claim("w", 3)
    queue.fail(leases[0], "infra", "broken", retryable=False)

    with standing.pause_for_switch(1):
        pass
    assert dispatcher.runs(["r"])[0].failure_rate == 1.0
    queue.fail(leases[1], "infra", "broken", retryable=False)

    assert dispatcher.runs(["r"])[0].is_failing


def test_only_a_pause_for_failures_is_one_and_a_resume_ends_it(dispatcher, wait_until):
    standing = RunControl("r", dispatcher, pause_at_switch=False)
    dispatcher.pause("r", why="by hand")
    assert not standing.is_failing()
    assert "paused (by hand): 'agent-layer runs resume r'" in str(standing.explain_missing_group(1))
    dispatcher.resume("r")
    for lease in open_queue(dispatcher).claim("w", 2):
        open_queue(dispatcher).fail(lease, "infra", "the disk is full", retryable=False)

    wait_until(standing.is_failing)
    assert "the disk is full; see 'agent-layer dead list'" in str(standing.explain_missing_group(1))
    dispatcher.resume("r")
    assert not RunControl("r", dispatcher, pause_at_switch=False).is_failing()


def test_what_waits_for_a_version_is_given_out_when_engines_serve_it(dispatcher, redis, keys):
    standing = RunControl("r", dispatcher, pause_at_switch=False)
    dispatcher.submit([Task(id="next", run="r", from_policy=1)])
    queue = open_queue(dispatcher)
    queue.claim("w", 3)
    dispatcher.serve("r", 0)
    one = PolicyVersion(run="r", number=1, location="there", created_at=0.0)
    register_policy(redis, keys, one, lambda _: None)

    with standing.pause_for_switch(1):
        assert queue.claim("w", 1) == []

    assert [lease.task.id for lease in queue.claim("w", 1)] == ["next"]


def test_a_run_whose_trainer_says_nothing_goes_by_what_is_registered(dispatcher, redis, keys):
    dispatcher.submit([Task(id="next", run="r", from_policy=1)])
    open_queue(dispatcher).claim("w", 3)
    assert open_queue(dispatcher).claim("w", 1) == []

    one = PolicyVersion(run="r", number=1, location="there", created_at=0.0)
    register_policy(redis, keys, one, lambda _: None)

    assert len(open_queue(dispatcher).claim("w", 1)) == 1
