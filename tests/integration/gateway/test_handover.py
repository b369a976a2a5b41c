"""An attempt passes from one holder to the next: what was done before the checkpoint counts, the rest does not."""

import asyncio

import pytest

from agent_layer.schema.rollout import Outcome, Resumed

from ...waiting import within
from .attempts import mark, open_attempt, resume

pytestmark = pytest.mark.usefixtures("index")


async def ask(gateway, opened, *message, **fields):
    """Return the id of the call."""
    before = {part.call_id for part in gateway.log.parts("end")}
    status, answer = await gateway.chat(opened, *message, **fields)
    assert status == 200, answer
    (called,) = {part.call_id for part in gateway.log.parts("end")} - before
    return called


async def test_calls_before_the_mark_are_kept_and_later_ones_abandoned(gateway):
    first = await open_attempt(gateway)
    kept = await ask(gateway, first, "one")
    checkpoint = await mark(gateway, first)
    left = [await ask(gateway, first, text) for text in ("two", "three")]

    status, second = await resume(gateway, checkpoint)
    again = await ask(gateway, second, "two")

    assert (status, second["abandoned"], second["trajectory_id"]) == (200, left, first["trajectory_id"])
    (resumed,) = gateway.log.of(Resumed)
    assert (resumed.worker, resumed.abandoned) == ("w-2", left)
    steps = gateway.log.trajectory("r-0").steps
    attributes = {step.call_id: (step.status, "abandoned" in step.findings) for step in steps}
    assert attributes == {kept: ("ok", False), again: ("ok", False)} | dict.fromkeys(left, ("aborted", True))


async def test_counts_go_on_so_that_nothing_is_missing_at_the_end(gateway):
    first = await open_attempt(gateway)
    await ask(gateway, first, "one")
    checkpoint = await mark(gateway, first)
    await ask(gateway, first, "two")
    _, second = await resume(gateway, checkpoint)
    await ask(gateway, second, "two")

    closed = await gateway.post("/rollouts/r/close", {"attempt": 0, "key": second["api_key"]})

    assert closed == (200, {"trajectory_id": "r-0", "started": 3, "ended": 3, "policy_calls": 2})


async def test_each_resume_leaves_behind_what_came_after_its_own_checkpoint(gateway):
    first = await open_attempt(gateway)
    early = await mark(gateway, first)
    left = await ask(gateway, first, "one")
    _, second = await resume(gateway, early)
    kept = await ask(gateway, second, "one")
    late = await mark(gateway, second)
    also_left = await ask(gateway, second, "two")

    _, third = await resume(gateway, late)

    assert third["abandoned"] == [also_left]
    attributes = {step.call_id: step.status for step in gateway.log.trajectory("r-0").steps}
    assert attributes == {left: "aborted", kept: "ok", also_left: "aborted"}


async def test_a_call_that_ran_at_the_mark_is_no_part_of_the_checkpoint(gateway, until, hold):
    go_on = hold(gateway.engine)
    first = await open_attempt(gateway)
    asking = asyncio.create_task(ask(gateway, first, "one"))
    await until(lambda: gateway.engine.num_running)
    checkpoint = await mark(gateway, first)
    go_on.set()
    called = await asking

    _, second = await resume(gateway, checkpoint)

    assert second["abandoned"] == [called]


async def test_the_old_key_opens_nothing_any_more(gateway):
    first = await open_attempt(gateway)
    _, second = await resume(gateway, await mark(gateway, first))

    assert (await gateway.chat(first, "hello"))[0] == 401
    assert (await gateway.chat(second, "hello"))[0] == 200


async def test_running_calls_of_the_old_holder_are_cut_off_down_to_the_engine(gateway, until):
    gateway.engine.token_seconds = 60
    first = await open_attempt(gateway)
    checkpoint = await mark(gateway, first)
    calling = asyncio.create_task(gateway.chat(first, "hello"))
    await until(lambda: gateway.engine.num_running)

    _, second = await resume(gateway, checkpoint)
    await until(lambda: not gateway.engine.num_running)

    assert (await calling)[1]["error"]["code"] == "rollout_paused"
    assert len(second["abandoned"]) == 1
    assert gateway.step(first).status == "aborted"


async def test_a_call_of_the_old_holder_that_waits_for_an_engine_never_leaves(gateway, until):
    first = await open_attempt(gateway)
    checkpoint = await mark(gateway, first)
    await gateway.post("/engines/drain", {"url": gateway.engine.url})
    calling = asyncio.create_task(gateway.chat(first, "hello"))
    await until(lambda: is_waiting(gateway))
    _, second = await resume(gateway, checkpoint)
    await gateway.post("/engines", {"url": gateway.engine.url})

    assert (await calling)[0] == 410
    assert (await gateway.chat(second, "hello"))[0] == 200
    assert len(gateway.log.trajectory("r-0").steps) == 1


async def is_waiting(gateway):
    return await gateway.figure("calls_waiting") == 1


@pytest.mark.parametrize("address", ["mark", "pause", "close"])
async def test_who_lost_the_attempt_can_neither_mark_nor_pause_nor_close_it(gateway, address):
    first = await open_attempt(gateway)
    _, second = await resume(gateway, await mark(gateway, first))

    status, answer = await gateway.post(f"/rollouts/r/{address}", {"attempt": 0, "key": first["api_key"]})

    assert (status, answer["error"]["code"]) == (412, "rollout_handed_on")
    assert (await gateway.chat(second, "hello"))[0] == 200


async def test_an_attempt_that_nobody_knows_cannot_be_resumed(gateway):
    status, answer = await resume(gateway, {"calls": 0})

    assert status == 404
    assert "not known here" in answer["error"]["message"]
    assert gateway.log.of(Resumed) == []


async def test_a_mark_of_something_else_is_refused(gateway):
    await open_attempt(gateway)

    status, answer = await resume(gateway, {"calls": 3})

    assert status == 400
    assert "at most its 0 calls" in answer["error"]["message"]


async def test_no_holders_death_uses_up_what_the_policy_may_do(gateway):
    first = await open_attempt(gateway, limits={"turns": 2, "tokens": 12})
    checkpoint = await mark(gateway, first)
    for text in ("one", "two"):
        await ask(gateway, first, text)
    assert (await gateway.chat(first, "three"))[0] == 429

    _, second = await resume(gateway, checkpoint)
    for text in ("one", "two"):
        await ask(gateway, second, text)

    assert (await gateway.chat(second, "three"))[0] == 429


async def test_a_fault_of_an_abandoned_call_is_nobodys(gateway):
    first = await open_attempt(gateway, group_id="g")
    checkpoint = await mark(gateway, first)
    await ask(gateway, first, "one", response_format={"type": "json_object"})

    _, second = await resume(gateway, checkpoint)
    _, closed = await gateway.post(f"/rollouts/{second['rollout_id']}/close", {})

    assert closed.get("policy_fault") is None


async def test_an_abandoned_answer_is_not_continued(gateway):
    first = await open_attempt(gateway)
    checkpoint = await mark(gateway, first)
    await ask(gateway, first, "one")
    _, second = await resume(gateway, checkpoint)

    await ask(gateway, second, "one", "you said: one", "two")

    assert [step.prompt.parent_call for step in gateway.log.trajectory("r-0").steps] == [None, None]


async def test_an_abandoned_answer_is_not_repeated(gateway):
    first = await open_attempt(gateway)
    checkpoint = await mark(gateway, first)
    named = {"headers": {"Idempotency-Key": "turn-1"}}
    left = await ask(gateway, first, "one", **named)
    _, second = await resume(gateway, checkpoint)

    kept = await ask(gateway, second, "one", **named)

    assert kept != left
    assert [step.status for step in gateway.log.trajectory("r-0").steps] == ["aborted", "ok"]


async def test_what_was_not_recorded_in_tokens_matters_only_where_it_counts(gateway):
    gateway.engine.token_ids = False
    first = await open_attempt(gateway)
    checkpoint = await mark(gateway, first)
    await ask(gateway, first, "one")
    gateway.engine.token_ids = True
    _, second = await resume(gateway, checkpoint)
    await ask(gateway, second, "one")

    _, closed = await gateway.post("/rollouts/r/close", {"attempt": 0, "key": second["api_key"]})

    assert "untokened" not in closed


async def test_closing_waits_until_the_resume_is_stored(gateway):
    first = await open_attempt(gateway)
    gateway.log.unsettled.add("memory")
    await resume(gateway, await mark(gateway, first))

    closing = asyncio.create_task(gateway.post("/rollouts/r/close", {"attempt": 0}))
    done, _ = await asyncio.wait({closing}, timeout=0.1)  # time in which it could end too early
    gateway.log.unsettled.clear()

    assert not done
    assert (await closing)[0] == 200


async def test_of_two_that_resume_at_once_the_last_holds_the_attempt(gateway):
    first = await open_attempt(gateway)
    checkpoint = await mark(gateway, first)

    (_, one), (_, other) = await asyncio.gather(resume(gateway, checkpoint), resume(gateway, checkpoint))

    assert sorted([(await gateway.chat(who, "hello"))[0] for who in (one, other)]) == [200, 401]


async def test_an_attempt_without_a_worker_may_be_resumed_and_ended(gateway):
    first = await gateway.open(rollout_id="r")
    await gateway.chat(first, "one")
    checkpoint = await mark(gateway, first)
    await gateway.chat(first, "two")
    status, answer = await gateway.post(
        "/rollouts", {"task_id": "t", "rollout_id": "r", "attempt": 0, "resume": checkpoint}
    )
    assert status == 200, answer

    _, ended = await gateway.post("/rollouts/r/end", {"reward": 1.0})

    assert (ended["accepted"], ended["started"], ended["ended"]) == (True, 2, 2)
    assert [one.status for one in gateway.log.of(Outcome)] == ["completed"]


async def test_closing_with_abort_waits_for_nothing_and_reaches_the_engine(settings, run_gateway, until):
    patient = settings.model_copy(update={"api_key": "operator-key", "close_seconds": 3600.0})
    async with run_gateway(patient) as gateway:
        gateway.engine.token_seconds = 60
        opened = await gateway.open()
        callings = [asyncio.create_task(gateway.chat(opened, "hello", stream=stream)) for stream in (False, True)]
        await until(lambda: gateway.engine.num_running == 2)

        async with within(60, "the close, which waits for no call"):
            _, closed = await gateway.post(f"/rollouts/{opened['rollout_id']}/close", {"attempt": 0, "abort": True})
        await until(lambda: not gateway.engine.num_running)
        await asyncio.gather(*callings, return_exceptions=True)

    assert (closed["started"], closed["ended"]) == (2, 2)
    assert [call.finished for call in gateway.engine.calls] == [False, False]
    assert {step.status for step in gateway.log.trajectory(opened["trajectory_id"]).steps} == {"aborted"}
