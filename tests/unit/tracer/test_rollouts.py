import asyncio

import pytest

import tracer
from agent_layer.errors import BackPressureError, BadInputError
from agent_layer.schema.rollout import Outcome
from agent_layer.schema.task import RewardSpec
from agent_layer.settings import Settings
from tracer.session import Session, use_session


class LimitError(Exception):
    code = "rollout_limit"


def fail_after_reward(error):
    with tracer.rollout(task="t") as rollout:
        rollout.reward(1.0)
        raise error


def read_outcome(captured):
    outcome = captured.trajectory.outcome
    return outcome.status, outcome.cause, captured.trajectory.accepted is not None


def test_a_rollout_that_ends_well_is_accepted_with_its_reward():
    options = {"task_type": "math", "run": "r", "split": "eval", "group_id": "g", "labels": {"by": "me"}}
    with tracer.testing.capture() as captured, tracer.rollout(task="t1", **options) as rollout:
        rollout.reward(0.5)
        tracer.reward(0.25, name="format")
        assert tracer.current() is rollout

    started = captured.trajectory.started
    assert (started.task_id, started.task_type, started.run, started.split) == ("t1", "math", "r", "eval")
    assert (started.group_id, started.labels) == ("g", {"by": "me"})
    assert captured.trajectory.reward == 0.75
    assert read_outcome(captured) == ("completed", None, True)
    assert tracer.current() is None


def test_a_missing_judgement_is_null_not_zero():
    declared = {"reward": RewardSpec()}
    with tracer.testing.capture() as captured, tracer.rollout(task="t", rewards=declared) as rollout:
        rollout.reward(None)

    assert captured.trajectory.rewards[0].status == "missing"
    assert captured.trajectory.reward is None


def test_rewards_of_steps_and_agents_keep_their_scope():
    with tracer.testing.capture() as captured, tracer.rollout(task="t") as rollout:
        rollout.reward(1.0, step=2)
        rollout.reward(1.0, agent="solver", source="judge")

    judged = [(one.scope, one.step, one.agent, one.source) for one in captured.trajectory.rewards]
    assert judged == [("step", 2, None, "agent"), ("agent", None, "solver", "judge")]
    assert captured.trajectory.reward is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("mine"), ("failed", "user", False)),
        (KeyboardInterrupt(), ("cancelled", "user", False)),
        (asyncio.CancelledError(), ("cancelled", "user", False)),
        (LimitError(), ("truncated", "policy", True)),
        (OSError("429 {'error': {'code': 'rollout_limit'}}"), ("truncated", "policy", True)),
    ],
)
def test_how_a_block_ends_is_how_its_rollout_ends(error, expected):
    with tracer.testing.capture() as captured, pytest.raises(type(error)):
        fail_after_reward(error)

    assert read_outcome(captured) == expected
    assert captured.trajectory.reward == (1.0 if expected[2] else None)


def test_an_error_of_the_block_is_not_hidden_by_one_of_its_ending():
    class FullSink:
        def append(self, *records):
            if any(isinstance(record, Outcome) for record in records):
                raise BackPressureError("log: expected room, found none")
            return "log"

    with use_session(Session(settings=Settings(), sink=FullSink())):
        with pytest.raises(ValueError, match="mine") as raised:
            fail_after_reward(ValueError("mine"))
        with pytest.raises(BackPressureError), tracer.rollout(task="t"):
            pass

    assert "expected room" in raised.value.__notes__[0]


def test_a_reward_outside_a_rollout_is_not_lost_in_silence():
    with pytest.raises(BadInputError, match=r"with tracer\.rollout"):
        tracer.reward(1.0)


def test_a_task_without_a_name_is_refused():
    with pytest.raises(BadInputError, match="task ''"):
        tracer.rollout(task="")


async def test_each_run_of_a_decorated_function_is_a_rollout():
    @tracer.rollout(task="sync")
    def solve(number):
        tracer.reward(number)
        return number

    @tracer.rollout(task="async")
    async def solve_later(number):
        await asyncio.sleep(0)
        tracer.reward(number)
        return number

    with tracer.testing.capture() as captured:
        assert [solve(1), solve(2)] == [1, 2]
        assert await asyncio.gather(solve_later(3), solve_later(4)) == [3, 4]

    rewards = [(one.started.task_id, one.reward) for one in captured.trajectories]
    assert sorted(rewards) == [("async", 3.0), ("async", 4.0), ("sync", 1.0), ("sync", 2.0)]


def test_a_rollout_inside_a_rollout_is_its_own():
    with tracer.testing.capture() as captured, tracer.rollout(task="outer") as outer:
        with tracer.rollout(task="inner") as inner:
            assert tracer.current() is inner
        assert tracer.current() is outer

    assert [one.started.task_id for one in captured.trajectories] == ["outer", "inner"]


async def test_rollouts_of_tasks_at_the_same_time_do_not_meet():
    async def live(number):
        async with tracer.rollout(task=f"t{number}"):
            await asyncio.sleep(0)
            tracer.reward(number)

    with tracer.testing.capture() as captured:
        await asyncio.gather(*map(live, range(20)))

    assert {one.started.task_id: one.reward for one in captured.trajectories} == {f"t{n}": float(n) for n in range(20)}


def test_a_rollout_travels_in_headers_and_its_key_does_not():
    with tracer.testing.capture() as captured, tracer.rollout(task="t", run="r") as rollout:
        headers = tracer.inject({"accept": "*/*"})
        with tracer.extract({name.upper(): value for name, value in headers.items()}) as remote:
            assert remote == tracer.current()
            tracer.reward(1.0)

    assert (remote.trajectory_id, remote.run, remote.trace_id) == (rollout.trajectory_id, "r", rollout.trace_id)
    assert set(headers) == {"accept", "x-agent-layer-rollout", "x-agent-layer-run", "traceparent"}
    assert captured.trajectory.reward == 1.0


def test_headers_without_a_rollout_enter_none():
    with tracer.testing.capture(), tracer.extract({"traceparent": "00-1-2-3"}) as rollout:
        assert rollout is None
        assert tracer.current() is None
    assert tracer.inject({}) == {}


@pytest.mark.parametrize("name", ["no-attempt-", "../../etc-0", ""])
def test_headers_that_name_no_rollout_are_refused(name):
    with tracer.testing.capture(), pytest.raises(BadInputError), tracer.extract({"x-agent-layer-rollout": name}):
        pass


def count():
    yield 1


async def count_later():
    yield 1


@pytest.mark.parametrize("function", [count, count_later, classmethod(count), property(count)])
def test_what_would_run_outside_its_rollout_is_refused(function):
    with pytest.raises(BadInputError, match="rollout decorator: expected a function"):
        tracer.rollout(task="t")(function)
