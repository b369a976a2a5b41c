"""A client's retry joins the call that it repeats, or gets its answer again; nothing is sampled twice for it."""

import asyncio

import pytest

from agent_layer.gateway.rollouts.retries import Call, CallTable, ResponseCache, RetryKey

CALL = {"x-agent-layer-call": "call-1"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("first", "again"),
    [
        (CALL, CALL),
        ({"idempotency-key": "k"}, {"idempotency-key": "k", "x-agent-layer-call": "another"}),
    ],
)
async def test_a_retry_gets_the_same_answer(gateway, stream, first, again):
    opened = await gateway.open()

    one = await gateway.chat(opened, "hello", stream=stream, headers=first)
    two = await gateway.chat(opened, "hello", stream=stream, headers=again)

    assert one == two
    assert len(gateway.engine.calls) == 1
    assert len(gateway.log.trajectory(opened["trajectory_id"]).steps) == 1


async def test_a_retry_joins_the_call_that_still_runs(gateway):
    gateway.engine.token_seconds = 0.05
    opened = await gateway.open()

    one, two = await asyncio.gather(*(gateway.chat(opened, "hello", headers=CALL) for _ in range(2)))

    assert one == two
    assert len(gateway.engine.calls) == 1


async def test_a_repetition_in_another_form_is_refused_not_sampled_again(gateway):
    opened = await gateway.open()
    await gateway.chat(opened, "hello", stream=True, headers=CALL)

    again = await gateway.chat(opened, "hello", headers=CALL)

    assert "same form" in str(again)
    assert len(gateway.engine.calls) == 1


async def test_equal_questions_alone_are_no_retry(gateway):
    opened = await gateway.open()

    for _ in range(2):
        await gateway.chat(opened, "hello")

    assert len(gateway.engine.calls) == len(gateway.log.trajectory(opened["trajectory_id"]).steps) == 2


async def test_another_question_is_no_retry_whatever_its_count(gateway):
    opened = await gateway.open()

    await gateway.chat(opened, "hello")
    await gateway.chat(opened, "hello", temperature=0.5, headers={"x-stainless-retry-count": "1"})

    assert len(gateway.engine.calls) == 2


async def test_a_call_that_failed_is_made_again_under_an_id_that_follows(gateway):
    opened = await gateway.open()
    served, gateway.engine.model = gateway.engine.model, "away"

    failed, _ = await gateway.chat(opened, "hello", headers=CALL)
    gateway.engine.model = served
    worked, _ = await gateway.chat(opened, "hello", headers=CALL | {"x-stainless-retry-count": "1"})
    again, _ = await gateway.chat(opened, "hello", headers=CALL | {"x-stainless-retry-count": "2"})

    assert (failed, worked, again) == (404, 200, 200)
    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert [(step.call_id, step.status) for step in steps] == [("call-1", "error"), ("call-1~1", "ok")]


async def test_retries_that_wait_for_a_call_that_fails_share_the_next_one(gateway, until):
    gateway.engine.token_seconds = 0.05
    opened = await gateway.open()
    body = {"model": "any", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    headers = CALL | {"Authorization": f"Bearer {opened['api_key']}"}

    async with gateway.session.post(f"{opened['base_url']}/chat/completions", json=body, headers=headers) as given_up:
        await given_up.content.readany()
        waiting = [asyncio.create_task(gateway.chat(opened, "hello", headers=CALL)) for _ in range(3)]
        await until(lambda: gateway.engine.num_running)
        given_up.close()
    one, *others = await asyncio.gather(*waiting)

    assert others == [one, one]
    assert len(gateway.engine.calls) == 2
    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert [(step.call_id, step.status) for step in steps] == [("call-1", "aborted"), ("call-1~1", "ok")]


def test_a_retry_that_never_began_gives_no_later_one_the_id_of_a_recorded_call():
    calls, asking = CallTable(), RetryKey(call_id="call", idempotency_key=None, retry_count=0, digest=1)

    ids: list[str] = []
    for is_started in (True, False, True, True):
        call = calls.add(asking, "minted")
        call.is_started = is_started
        call.done.set()
        ids += [call.call_id] * is_started

    assert ids == ["call", "call~1", "call~2"]


def test_calls_that_are_to_begin_have_different_ids():
    calls, asking = CallTable(), RetryKey(call_id="call", idempotency_key=None, retry_count=0, digest=1)

    assert [calls.add(asking, "minted").call_id for _ in range(3)] == ["call", "call~1", "call~2"]


def test_old_answers_leave_the_shelf():
    shelf, calls = ResponseCache(max_bytes=10), [Call("a"), Call("b"), Call("c")]

    for call in calls:
        shelf.keep(call, b"12345", "text/plain")

    assert [call.answer for call in calls] == [None, b"12345", b"12345"]


def test_answers_that_nobody_may_ask_for_leave_the_shelf_and_make_room():
    shelf, calls = ResponseCache(max_bytes=10), [Call("a"), Call("b"), Call("c")]
    shelf.keep(calls[0], b"12345", "text/plain")

    shelf.clear([calls[0], Call("never answered")])
    for call in calls[1:]:
        shelf.keep(call, b"12345", "text/plain")

    assert [call.answer for call in calls] == [None, b"12345", b"12345"]
