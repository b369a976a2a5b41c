"""Closing an attempt ends its calls and counts them; only a whole one is accepted."""

import asyncio
import gc

import pytest

from agent_layer.errors import BackPressureError
from agent_layer.gateway.rollouts.retries import Call
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, Outcome

pytestmark = pytest.mark.usefixtures("index")


async def test_a_closed_rollout_takes_no_more_calls(house):
    opened = await house.open()
    await house.chat(opened, "hello")

    closed = await house.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0})

    assert closed == (200, {"trajectory_id": opened["trajectory_id"], "started": 1, "ended": 1})
    assert (await house.chat(opened, "hello"))[0] == 410


async def test_a_closed_rollout_leaves_no_answers_in_memory(house):
    opened = await house.open()
    await house.chat(opened, "a question that nobody else asks")
    assert count_answers(b"that nobody else asks") == 1

    await house.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0})

    assert count_answers(b"that nobody else asks") == 0


def count_answers(text):
    gc.collect()
    calls = [one for one in gc.get_objects() if type(one) is Call]
    return sum(text in (call.answer or b"") for call in calls)


async def test_closing_lets_running_calls_end(settings, keep, until):
    async with keep(settings.model_copy(update={"api_key": "operator-key", "close_seconds": 60.0})) as house:
        house.engine.token_seconds = 0.02
        opened = await house.open()

        calling = asyncio.create_task(house.chat(opened, "hello"))
        await until(lambda: house.engine.num_running)
        _, closed = await house.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0})

        assert (closed["started"], closed["ended"]) == (1, 1)
        assert (await calling)[0] == 200


async def test_closing_cuts_off_calls_that_take_too_long(house, until):
    house.engine.token_seconds = 60
    opened = await house.open()

    calling = asyncio.create_task(house.chat(opened, "hello"))
    await until(lambda: house.engine.num_running)
    _, closed = await house.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0})
    await asyncio.gather(calling, return_exceptions=True)

    assert (closed["started"], closed["ended"]) == (1, 1)
    assert house.step(opened).status == "aborted"


async def test_another_attempt_takes_the_place_of_the_one_before(house, until):
    house.engine.token_seconds = 60
    before = await house.open(rollout_id="r", owner="worker")

    calling = asyncio.create_task(house.chat(before, "hello"))
    await until(lambda: house.engine.num_running)
    await house.open(rollout_id="r", attempt=1, owner="worker")
    await asyncio.gather(calling, return_exceptions=True)

    assert house.step(before).status == "aborted"
    assert (await house.chat(before, "hello"))[0] == 410
    _, closed = await house.post("/rollouts/r/close", {"attempt": 0})
    assert (closed["started"], closed["ended"]) == (1, 1)


async def test_an_attempt_whose_place_was_taken_is_lost_and_cannot_be_ended(house):
    before = await house.open(rollout_id="r")
    await house.chat(before, "hello")
    await house.open(rollout_id="r", attempt=1)

    status, answer = await house.post("/rollouts/r/end", {"attempt": 0, "reward": 1.0})

    assert (status, answer["accepted"], answer["reward"]) == (200, False, None)
    (outcome,) = house.log.of(Outcome)
    assert (outcome.trajectory_id, outcome.status, outcome.cause, outcome.num_calls) == ("r-0", "lost", "infra", 1)
    assert "r-1 took its place" in outcome.error


async def test_ending_an_attempt_that_came_late_is_refused(house):
    for attempt in (1, 0):
        await house.open(rollout_id="r", attempt=attempt)

    status, answer = await house.post("/rollouts/r/end", {"attempt": 0})

    assert (status, answer["error"]["code"]) == (409, "rollout_overtaken")
    assert (await house.post("/rollouts/r/end", {}))[1]["accepted"]


async def test_a_rollout_counts_once(house):
    await house.open(rollout_id="r")
    await house.post("/rollouts/r/end", {"reward": 1.0})

    status, answer = await house.post("/rollouts", {"task_id": "t", "rollout_id": "r", "attempt": 1})

    assert status == 400
    assert "r-0 was accepted" in answer["error"]["message"]


async def test_closing_and_ending_may_be_said_again(house):
    await house.open(rollout_id="r")

    closings = [await house.post("/rollouts/r/close", {}) for _ in range(2)]
    endings = [await house.post("/rollouts/r/end", {"reward": 0.5}) for _ in range(3)]

    assert closings[0] == closings[1]
    assert endings[0] == endings[1] == endings[2]
    assert len(house.log.of(Outcome)) == len(house.log.of(Reward)) == 1


async def test_what_is_open_when_the_gateway_stops_is_lost(settings, keep, log):
    async with keep(settings.model_copy(update={"api_key": "operator-key"})) as house:
        ours, theirs = await house.open(), await house.open(owner="worker")

    assert [(one.trajectory_id, one.status) for one in log.of(Outcome)] == [(ours["trajectory_id"], "lost")]
    assert theirs["trajectory_id"] != ours["trajectory_id"]


async def test_an_attempt_that_comes_late_leaves_the_newer_one_open(house):
    newer = await house.open(rollout_id="r", attempt=1)

    await house.open(rollout_id="r", attempt=0)

    assert (await house.chat(newer, "hello"))[0] == 200


async def test_ending_accepts_a_whole_attempt_once(house):
    opened = await house.open(rewards={"correct": {"weight": 2.0}, "style": {"required": False}})
    await house.chat(opened, "hello")
    await house.post(f"/r/{opened['trajectory_id']}/reward", {"score": 0.5, "name": "correct"}, key=opened["api_key"])

    for _ in range(2):
        status, ended = await house.post(f"/rollouts/{opened['rollout_id']}/end", {})
        assert (status, ended["accepted"], ended["reward"]) == (200, True, 1.0)

    assert len(house.log.of(Accepted)) == len(house.log.of(Outcome)) == 1
    assert house.log.of(Outcome)[0].num_calls == 1


async def test_a_closed_rollout_takes_no_more_rewards(house):
    opened = await house.open()
    await house.post(f"/rollouts/{opened['rollout_id']}/end", {"reward": 0.25})

    status, _ = await house.post(f"/r/{opened['trajectory_id']}/reward", {"score": 1.0}, key=opened["api_key"])

    assert status == 410
    assert [reward.score for reward in house.log.of(Reward)] == [0.25]


async def test_a_rollout_is_not_closed_before_its_rewards_are_stored(house):
    opened = await house.open(owner="worker")
    house.log.unsettled.add("memory")
    await house.post(f"/r/{opened['trajectory_id']}/reward", {"score": 1.0}, key=opened["api_key"])

    closing = asyncio.create_task(house.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0}))
    done, _ = await asyncio.wait({closing}, timeout=0.1)
    house.log.unsettled.clear()

    assert not done
    assert (await closing)[0] == 200


async def test_a_reward_may_come_with_the_end(house):
    opened = await house.open()

    _, ended = await house.post(f"/rollouts/{opened['rollout_id']}/end", {"reward": 0.25})

    assert ended["reward"] == 0.25
    assert [reward.score for reward in house.log.of(Reward)] == [0.25]


async def test_a_reward_without_a_score_is_missing(house):
    opened = await house.open()

    await house.post(f"/r/{opened['trajectory_id']}/reward", {"score": None}, key=opened["api_key"])

    assert [(reward.score, reward.status) for reward in house.log.of(Reward)] == [(None, "missing")]


async def test_a_failed_attempt_is_not_accepted_and_has_no_reward(house):
    opened = await house.open()

    _, ended = await house.post(f"/rollouts/{opened['rollout_id']}/end", {"reward": 1.0, "status": "failed"})

    assert (ended["accepted"], ended["reward"]) == (False, None)
    assert house.log.of(Accepted) == []


async def test_nothing_is_accepted_before_it_is_whole(house, redis, keys):
    opened = await house.open()
    await house.chat(opened, "hello")
    redis.delete(keys.calls(opened["trajectory_id"]))

    status, answer = await house.post(f"/rollouts/{opened['rollout_id']}/end", {"reward": 1.0})

    assert status == 409
    assert "1 calls" in answer["error"]["message"]
    assert house.log.of(Accepted) == []


async def test_a_full_log_holds_calls_back(house):
    opened = await house.open()
    house.log.has_space = False

    calling = asyncio.create_task(house.chat(opened, "hello"))
    await asyncio.sleep(0.05)
    assert house.engine.calls == []
    house.log.has_space = True

    assert (await calling)[0] == 200


async def test_an_opening_that_the_log_refused_does_not_stand_in_the_way_of_the_next(house, log, monkeypatch):
    def refuse(*_):
        raise BackPressureError("full")

    with monkeypatch.context() as patch:
        patch.setattr(log, "append", refuse)
        status, _ = await house.post("/rollouts", {"task_id": "t", "rollout_id": "r", "attempt": 0})
    opened = await house.open(rollout_id="r", attempt=1)

    assert (status, opened["trajectory_id"]) == (503, "r-1")
