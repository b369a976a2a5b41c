"""An attempt passes from one holder to the next: what was done before the checkpoint counts, the rest does not."""

import asyncio

import pytest

from agent_layer.schema.rollout import Outcome, Resumed

from .handing_on import mark, open_attempt, resume

pytestmark = pytest.mark.usefixtures("index")


async def ask(house, opened, *said, **fields):
    """Give the id of the call."""
    before = {part.call_id for part in house.log.parts("end")}
    status, answer = await house.chat(opened, *said, **fields)
    assert status == 200, answer
    (called,) = {part.call_id for part in house.log.parts("end")} - before
    return called


async def test_calls_before_the_mark_are_kept_and_later_ones_abandoned(house):
    first = await open_attempt(house)
    kept = await ask(house, first, "one")
    checkpoint = await mark(house, first)
    left = [await ask(house, first, text) for text in ("two", "three")]

    status, second = await resume(house, checkpoint)
    again = await ask(house, second, "two")

    assert (status, second["abandoned"], second["trajectory_id"]) == (200, left, first["trajectory_id"])
    (resumed,) = house.log.of(Resumed)
    assert (resumed.worker, resumed.abandoned) == ("w-2", left)
    steps = house.log.trajectory("r-0").steps
    told = {step.call_id: (step.status, "abandoned" in step.findings) for step in steps}
    assert told == {kept: ("ok", False), again: ("ok", False)} | dict.fromkeys(left, ("aborted", True))


async def test_counts_go_on_so_that_nothing_is_missing_at_the_end(house):
    first = await open_attempt(house)
    await ask(house, first, "one")
    checkpoint = await mark(house, first)
    await ask(house, first, "two")
    _, second = await resume(house, checkpoint)
    await ask(house, second, "two")

    closed = await house.post("/rollouts/r/close", {"attempt": 0, "key": second["api_key"]})

    assert closed == (200, {"trajectory_id": "r-0", "started": 3, "ended": 3})


async def test_each_resume_leaves_behind_what_came_after_its_own_checkpoint(house):
    first = await open_attempt(house)
    early = await mark(house, first)
    left = await ask(house, first, "one")
    _, second = await resume(house, early)
    kept = await ask(house, second, "one")
    late = await mark(house, second)
    also_left = await ask(house, second, "two")

    _, third = await resume(house, late)

    assert third["abandoned"] == [also_left]
    told = {step.call_id: step.status for step in house.log.trajectory("r-0").steps}
    assert told == {left: "aborted", kept: "ok", also_left: "aborted"}


async def test_a_call_that_ran_at_the_mark_is_no_part_of_the_checkpoint(house, until, hold):
    go_on = hold(house.engine)
    first = await open_attempt(house)
    asking = asyncio.create_task(ask(house, first, "one"))
    await until(lambda: house.engine.num_running)
    checkpoint = await mark(house, first)
    go_on.set()
    called = await asking

    _, second = await resume(house, checkpoint)

    assert second["abandoned"] == [called]


async def test_the_old_key_opens_nothing_any_more(house):
    first = await open_attempt(house)
    _, second = await resume(house, await mark(house, first))

    assert (await house.chat(first, "hello"))[0] == 401
    assert (await house.chat(second, "hello"))[0] == 200


async def test_running_calls_of_the_old_holder_are_cut_off_down_to_the_engine(house, until):
    house.engine.token_seconds = 60
    first = await open_attempt(house)
    checkpoint = await mark(house, first)
    calling = asyncio.create_task(house.chat(first, "hello"))
    await until(lambda: house.engine.num_running)

    _, second = await resume(house, checkpoint)
    await until(lambda: not house.engine.num_running)

    assert (await calling)[1]["error"]["code"] == "rollout_paused"
    assert len(second["abandoned"]) == 1
    assert house.step(first).status == "aborted"


async def test_a_call_of_the_old_holder_that_waits_for_an_engine_never_leaves(house):
    first = await open_attempt(house)
    checkpoint = await mark(house, first)
    await house.post("/engines/drain", {"url": house.engine.url})
    calling = asyncio.create_task(house.chat(first, "hello"))
    await asyncio.sleep(0.3)
    _, second = await resume(house, checkpoint)
    await house.post("/engines", {"url": house.engine.url})

    assert (await calling)[0] in (401, 410)  # 401 where it had not even arrived
    assert (await house.chat(second, "hello"))[0] == 200
    assert len(house.log.trajectory("r-0").steps) == 1


@pytest.mark.parametrize("address", ["mark", "pause", "close"])
async def test_who_lost_the_attempt_can_neither_mark_nor_pause_nor_close_it(house, address):
    first = await open_attempt(house)
    _, second = await resume(house, await mark(house, first))

    status, answer = await house.post(f"/rollouts/r/{address}", {"attempt": 0, "key": first["api_key"]})

    assert (status, answer["error"]["code"]) == (412, "rollout_handed_on")
    assert (await house.chat(second, "hello"))[0] == 200


async def test_an_attempt_that_nobody_knows_cannot_be_resumed(house):
    status, answer = await resume(house, {"calls": 0})

    assert status == 404
    assert "not known here" in answer["error"]["message"]
    assert house.log.of(Resumed) == []


async def test_a_mark_of_something_else_is_refused(house):
    await open_attempt(house)

    status, answer = await resume(house, {"calls": 3})

    assert status == 400
    assert "at most its 0 calls" in answer["error"]["message"]


async def test_no_holders_death_uses_up_what_the_policy_may_do(house):
    first = await open_attempt(house, limits={"turns": 2, "tokens": 12})
    checkpoint = await mark(house, first)
    for text in ("one", "two"):
        await ask(house, first, text)
    assert (await house.chat(first, "three"))[0] == 429

    _, second = await resume(house, checkpoint)
    for text in ("one", "two"):
        await ask(house, second, text)

    assert (await house.chat(second, "three"))[0] == 429


async def test_an_abandoned_answer_is_not_continued(house):
    first = await open_attempt(house)
    checkpoint = await mark(house, first)
    await ask(house, first, "one")
    _, second = await resume(house, checkpoint)

    await ask(house, second, "one", "you said: one", "two")

    assert [step.prompt.parent_call for step in house.log.trajectory("r-0").steps] == [None, None]


async def test_an_abandoned_answer_is_not_repeated(house):
    first = await open_attempt(house)
    checkpoint = await mark(house, first)
    named = {"headers": {"Idempotency-Key": "turn-1"}}
    left = await ask(house, first, "one", **named)
    _, second = await resume(house, checkpoint)

    kept = await ask(house, second, "one", **named)

    assert kept != left
    assert [step.status for step in house.log.trajectory("r-0").steps] == ["aborted", "ok"]


async def test_what_was_not_recorded_in_tokens_matters_only_where_it_counts(house):
    house.engine.token_ids = False
    first = await open_attempt(house)
    checkpoint = await mark(house, first)
    await ask(house, first, "one")
    house.engine.token_ids = True
    _, second = await resume(house, checkpoint)
    await ask(house, second, "one")

    _, closed = await house.post("/rollouts/r/close", {"attempt": 0, "key": second["api_key"]})

    assert "untokened" not in closed


async def test_closing_waits_until_the_resume_is_stored(house):
    first = await open_attempt(house)
    house.log.unsettled.add("memory")
    await resume(house, await mark(house, first))

    closing = asyncio.create_task(house.post("/rollouts/r/close", {"attempt": 0}))
    done, _ = await asyncio.wait({closing}, timeout=0.1)
    house.log.unsettled.clear()

    assert not done
    assert (await closing)[0] == 200


async def test_of_two_that_resume_at_once_the_last_holds_the_attempt(house):
    first = await open_attempt(house)
    checkpoint = await mark(house, first)

    (_, one), (_, other) = await asyncio.gather(resume(house, checkpoint), resume(house, checkpoint))

    assert sorted([(await house.chat(who, "hello"))[0] for who in (one, other)]) == [200, 401]


async def test_an_attempt_without_a_worker_may_be_resumed_and_ended(house):
    first = await house.open(rollout_id="r")
    await house.chat(first, "one")
    checkpoint = await mark(house, first)
    await house.chat(first, "two")
    status, answer = await house.post(
        "/rollouts", {"task_id": "t", "rollout_id": "r", "attempt": 0, "resume": checkpoint}
    )
    assert status == 200, answer

    _, ended = await house.post("/rollouts/r/end", {"reward": 1.0})

    assert (ended["accepted"], ended["started"], ended["ended"]) == (True, 2, 2)
    assert [one.status for one in house.log.of(Outcome)] == ["completed"]


async def test_closing_with_abort_waits_for_nothing_and_reaches_the_engine(settings, keep, until):
    patient = settings.model_copy(update={"api_key": "operator-key", "close_seconds": 60.0})
    async with keep(patient) as house:
        house.engine.token_seconds = 60
        opened = await house.open()
        callings = [asyncio.create_task(house.chat(opened, "hello", stream=stream)) for stream in (False, True)]
        await until(lambda: house.engine.num_running == 2)

        async with asyncio.timeout(30):
            _, closed = await house.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0, "abort": True})
        await until(lambda: not house.engine.num_running)
        await asyncio.gather(*callings, return_exceptions=True)

    assert (closed["started"], closed["ended"]) == (2, 2)
    assert [call.finished for call in house.engine.calls] == [False, False]
    assert {step.status for step in house.log.trajectory(opened["trajectory_id"]).steps} == {"aborted"}
