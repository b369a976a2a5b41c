"""Closing an attempt ends its calls and counts them; only a whole one is accepted."""

import asyncio
import gc
import sys
from types import BuiltinFunctionType, FunctionType, MethodType

import pytest

from agent_layer.errors import BackPressureError
from agent_layer.gateway.rollouts.retries import Call
from agent_layer.gateway.rollouts.rollout import LiveRollout
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, Outcome

from ...clocks import SteppedClock
from ...waiting import scaled

pytestmark = pytest.mark.usefixtures("index")


async def test_a_closed_rollout_takes_no_more_calls(gateway):
    opened = await gateway.open()
    await gateway.chat(opened, "hello")

    closed = await gateway.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0})

    assert closed == (200, {"trajectory_id": opened["trajectory_id"], "started": 1, "ended": 1, "policy_calls": 1})
    assert (await gateway.chat(opened, "hello"))[0] == 410


async def test_a_closed_rollout_leaves_no_answers_in_memory(gateway):
    opened = await gateway.open()
    await gateway.chat(opened, "a question that nobody else asks")
    assert count_answers(b"that nobody else asks") == 1

    await gateway.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0})
    gc.collect()

    assert count_answers(b"that nobody else asks") == 0


def count_answers(text):
    calls = [one for one in gc.get_objects() if type(one) is Call]
    return sum(text in (call.answer or b"") for call in calls)


async def test_a_closed_rollout_is_small_however_many_calls_it_made(gateway):
    """The gateway keeps 10,000 of them: what only calls need goes when the rollout closes."""
    quiet, busy = await gateway.open(), await gateway.open()
    for number in range(20):
        await gateway.chat(busy, f"question {number}")
    was_large = measure_rollout(busy) > 20_000
    for opened in (quiet, busy):
        await gateway.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0})

    assert was_large
    assert measure_rollout(quiet) < 3_300
    assert measure_rollout(busy) < measure_rollout(quiet) + 200


def measure_rollout(opened):
    """Return the bytes of a rollout and of all that it refers to, without code, classes and its clock."""
    (rollout,) = [
        one for one in gc.get_objects() if type(one) is LiveRollout and one.trajectory_id == opened["trajectory_id"]
    ]
    found, waiting = {}, [rollout]
    while waiting:
        one = waiting.pop()
        if id(one) not in found and not isinstance(
            one, type | BuiltinFunctionType | FunctionType | MethodType | SteppedClock
        ):
            found[id(one)] = one
            waiting += gc.get_referents(one)
    return sum(map(sys.getsizeof, found.values()))


async def test_closing_lets_running_calls_end(settings, run_gateway, until):
    async with run_gateway(
        settings.model_copy(update={"api_key": "operator-key", "close_seconds": scaled(60.0)})
    ) as gateway:
        gateway.engine.token_seconds = 0.02
        opened = await gateway.open()

        calling = asyncio.create_task(gateway.chat(opened, "hello"))
        await until(lambda: gateway.engine.num_running)
        _, closed = await gateway.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0})

        assert (closed["started"], closed["ended"]) == (1, 1)
        assert (await calling)[0] == 200


async def test_closing_cuts_off_calls_that_take_too_long(gateway, until):
    gateway.engine.token_seconds = 60
    opened = await gateway.open()

    calling = asyncio.create_task(gateway.chat(opened, "hello"))
    await until(lambda: gateway.engine.num_running)
    _, closed = await gateway.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0})
    await asyncio.gather(calling, return_exceptions=True)

    assert (closed["started"], closed["ended"]) == (1, 1)
    assert gateway.step(opened).status == "aborted"


async def test_another_attempt_takes_the_place_of_the_one_before(gateway, until):
    gateway.engine.token_seconds = 60
    before = await gateway.open(rollout_id="r", owner="worker")

    calling = asyncio.create_task(gateway.chat(before, "hello"))
    await until(lambda: gateway.engine.num_running)
    await gateway.open(rollout_id="r", attempt=1, owner="worker")
    await asyncio.gather(calling, return_exceptions=True)

    assert gateway.step(before).status == "aborted"
    assert (await gateway.chat(before, "hello"))[0] == 410
    _, closed = await gateway.post("/rollouts/r/close", {"attempt": 0})
    assert (closed["started"], closed["ended"]) == (1, 1)


async def test_an_attempt_whose_place_was_taken_is_lost_and_cannot_be_ended(gateway):
    before = await gateway.open(rollout_id="r")
    await gateway.chat(before, "hello")
    await gateway.open(rollout_id="r", attempt=1)

    status, answer = await gateway.post("/rollouts/r/end", {"attempt": 0, "reward": 1.0})

    assert (status, answer["accepted"], answer["reward"]) == (200, False, None)
    (outcome,) = gateway.log.of(Outcome)
    assert (outcome.trajectory_id, outcome.status, outcome.cause, outcome.num_calls) == ("r-0", "lost", "infra", 1)
    assert "r-1 took its place" in outcome.error


async def test_ending_an_attempt_that_came_late_is_refused(gateway):
    for attempt in (1, 0):
        await gateway.open(rollout_id="r", attempt=attempt)

    status, answer = await gateway.post("/rollouts/r/end", {"attempt": 0})

    assert (status, answer["error"]["code"]) == (409, "rollout_overtaken")
    assert (await gateway.post("/rollouts/r/end", {}))[1]["accepted"]


async def test_a_rollout_counts_once(gateway):
    await gateway.open(rollout_id="r")
    await gateway.post("/rollouts/r/end", {"reward": 1.0})

    status, answer = await gateway.post("/rollouts", {"task_id": "t", "rollout_id": "r", "attempt": 1})

    assert status == 400
    assert "r-0 was accepted" in answer["error"]["message"]


async def test_closing_and_ending_may_be_said_again(gateway):
    await gateway.open(rollout_id="r")

    closings = [await gateway.post("/rollouts/r/close", {}) for _ in range(2)]
    endings = [await gateway.post("/rollouts/r/end", {"reward": 0.5}) for _ in range(3)]

    assert closings[0] == closings[1]
    assert endings[0] == endings[1] == endings[2]
    assert len(gateway.log.of(Outcome)) == len(gateway.log.of(Reward)) == 1


async def test_what_is_open_when_the_gateway_stops_is_lost(settings, run_gateway, log):
    async with run_gateway(settings.model_copy(update={"api_key": "operator-key"})) as gateway:
        ours, theirs = await gateway.open(), await gateway.open(owner="worker")

    assert [(one.trajectory_id, one.status) for one in log.of(Outcome)] == [(ours["trajectory_id"], "lost")]
    assert theirs["trajectory_id"] != ours["trajectory_id"]


async def test_an_attempt_that_comes_late_leaves_the_newer_one_open(gateway):
    newer = await gateway.open(rollout_id="r", attempt=1)

    await gateway.open(rollout_id="r", attempt=0)

    assert (await gateway.chat(newer, "hello"))[0] == 200


async def test_ending_accepts_a_whole_attempt_once(gateway):
    opened = await gateway.open(rewards={"correct": {"weight": 2.0}, "style": {"required": False}})
    await gateway.chat(opened, "hello")
    await gateway.post(f"/r/{opened['trajectory_id']}/reward", {"score": 0.5, "name": "correct"}, key=opened["api_key"])

    for _ in range(2):
        status, ended = await gateway.post(f"/rollouts/{opened['rollout_id']}/end", {})
        assert (status, ended["accepted"], ended["reward"]) == (200, True, 1.0)

    assert len(gateway.log.of(Accepted)) == len(gateway.log.of(Outcome)) == 1
    assert gateway.log.of(Outcome)[0].num_calls == 1


async def test_a_closed_rollout_takes_no_more_rewards(gateway):
    opened = await gateway.open()
    await gateway.post(f"/rollouts/{opened['rollout_id']}/end", {"reward": 0.25})

    status, _ = await gateway.post(f"/r/{opened['trajectory_id']}/reward", {"score": 1.0}, key=opened["api_key"])

    assert status == 410
    assert [reward.score for reward in gateway.log.of(Reward)] == [0.25]


async def test_a_rollout_is_not_closed_before_its_rewards_are_stored(gateway):
    opened = await gateway.open(owner="worker")
    gateway.log.unsettled.add("memory")
    await gateway.post(f"/r/{opened['trajectory_id']}/reward", {"score": 1.0}, key=opened["api_key"])

    closing = asyncio.create_task(gateway.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0}))
    done, _ = await asyncio.wait({closing}, timeout=0.1)  # time in which it could end too early
    gateway.log.unsettled.clear()

    assert not done
    assert (await closing)[0] == 200


async def test_a_reward_may_come_with_the_end(gateway):
    opened = await gateway.open(calls_optional=True)

    _, ended = await gateway.post(f"/rollouts/{opened['rollout_id']}/end", {"reward": 0.25})

    assert ended["reward"] == 0.25
    assert [reward.score for reward in gateway.log.of(Reward)] == [0.25]


async def test_a_reward_without_a_score_is_missing(gateway):
    opened = await gateway.open()

    await gateway.post(f"/r/{opened['trajectory_id']}/reward", {"score": None}, key=opened["api_key"])

    assert [(reward.score, reward.status) for reward in gateway.log.of(Reward)] == [(None, "missing")]


async def test_a_failed_attempt_is_not_accepted_and_has_no_reward(gateway):
    opened = await gateway.open()

    _, ended = await gateway.post(f"/rollouts/{opened['rollout_id']}/end", {"reward": 1.0, "status": "failed"})

    assert (ended["accepted"], ended["reward"]) == (False, None)
    assert gateway.log.of(Accepted) == []


async def test_nothing_is_accepted_before_it_is_whole(gateway, redis, keys):
    opened = await gateway.open()
    await gateway.chat(opened, "hello")
    redis.delete(keys.calls(opened["trajectory_id"]))

    status, answer = await gateway.post(f"/rollouts/{opened['rollout_id']}/end", {"reward": 1.0})

    assert status == 409
    assert "1 calls" in answer["error"]["message"]
    assert gateway.log.of(Accepted) == []


async def test_a_full_log_holds_calls_back(gateway):
    opened = await gateway.open()
    gateway.log.has_space = False

    calling = asyncio.create_task(gateway.chat(opened, "hello"))
    await asyncio.sleep(0.05)  # time in which the call could reach the engine
    assert gateway.engine.calls == []
    gateway.log.has_space = True

    assert (await calling)[0] == 200


async def test_an_opening_that_the_log_refused_does_not_stand_in_the_way_of_the_next(gateway, log, monkeypatch):
    def refuse(*_):
        raise BackPressureError("full")

    with monkeypatch.context() as patch:
        patch.setattr(log, "append", refuse)
        status, _ = await gateway.post("/rollouts", {"task_id": "t", "rollout_id": "r", "attempt": 0})
    opened = await gateway.open(rollout_id="r", attempt=1)

    assert (status, opened["trajectory_id"]) == (503, "r-1")
