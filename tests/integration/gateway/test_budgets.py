"""What an attempt may use up: calls, tokens and time, counted at the gateway."""

import asyncio
import time

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given, strategies as st

from agent_layer.engines.control import EngineControl
from agent_layer.errors import BadInputError, EngineError
from agent_layer.gateway.calls.pipeline import Calls
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.gateway.rollouts.budget import Budget
from agent_layer.gateway.rollouts.rollout import EndedCall, new_rollout
from agent_layer.schema import OpenRequest
from agent_layer.schema.task import Limits

from ...clocks import SteppedClock
from ...waiting import scaled
from .conftest import OPERATOR

COUNTS = st.integers(1, 10_000)


@given(limit=COUNTS, num_sampled=st.integers(0, 12_000), wanted=COUNTS, num_choices=st.none() | st.integers(1, 8))
def test_an_answers_length_stays_within_the_tokens_that_are_left(limit, num_sampled, wanted, num_choices):
    request = {"max_tokens": wanted, "n": num_choices, "temperature": 1.0}

    applied = request | Budget(limits=Limits(tokens=limit)).cap(request, num_sampled)

    assert 1 <= applied["max_tokens"] <= wanted
    assert applied["max_tokens"] * (num_choices or 1) <= max(limit - num_sampled, num_choices or 1)


def test_a_request_without_a_length_or_a_rollout_without_a_limit_is_left_alone():
    assert Budget(limits=Limits(tokens=5)).cap({"n": 2}, 0) == {}
    assert Budget().cap({"max_tokens": 10**9}, 0) == {}


def fails_with(status):
    def fail(_):
        raise ERRORS[status]()

    return fail


ERRORS = {
    400: lambda: BadInputError("not this"),
    429: web.HTTPTooManyRequests,
    500: web.HTTPInternalServerError,
    503: web.HTTPServiceUnavailable,
}


@pytest.mark.parametrize(
    ("failing", "spent"),
    [
        (lambda _: {"content": "x", "finish_reason": "error"}, 0),
        (lambda _: {"content": "x", "finish_reason": "abort"}, 0),
        (lambda _: {"content": "x", "finish_reason": "repetition"}, 1),
        (fails_with(400), 1),
        (fails_with(429), 0),
        (fails_with(500), 0),
        (fails_with(503), 0),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_engine_failed_spends_no_turn(gateway, failing, spent, stream):
    opened, works = await gateway.open(limits={"turns": 2}), gateway.engine.script
    gateway.engine.script = failing
    for _ in range(2):
        await gateway.chat(opened, "hello", stream=stream)
    gateway.engine.script = works

    statuses = [(await gateway.chat(opened, "hello", stream=stream))[0] for _ in range(3)]

    assert statuses == ([429, 429, 429] if spent else [200, 200, 429])


async def test_a_stream_that_the_engine_breaks_off_spends_no_turn(gateway):
    opened, works = await gateway.open(limits={"turns": 1}), gateway.engine.script
    gateway.engine.script = lambda _: {"content": "x", "error": {"message": "no memory"}}
    for _ in range(2):
        await gateway.chat(opened, "hello", stream=True)
    gateway.engine.script = works

    statuses = [(await gateway.chat(opened, "hello"))[0] for _ in range(2)]

    assert statuses == [200, 429]


@pytest.mark.parametrize("names", [{}, {"x-agent-layer-call": "c"}, {"idempotency-key": "k"}])
async def test_a_question_that_is_asked_again_spends_one_turn(gateway, until, names):
    gateway.engine.token_seconds = 0.05
    opened = await gateway.open(limits={"turns": 1})
    for tries in range(2):
        asking = asyncio.create_task(
            gateway.chat(opened, "hello", headers=names | {"x-stainless-retry-count": str(tries)})
        )
        await until(lambda: len(gateway.log.parts("start")) == tries + 1)  # noqa: B023  # awaited at once
        asking.cancel()
        await until(lambda: len(gateway.log.parts("end")) == tries + 1)  # noqa: B023  # awaited at once

    answered, _ = await gateway.chat(opened, "hello", headers=names | {"x-stainless-retry-count": "2"})
    another, _ = await gateway.chat(opened, "something else")

    assert (answered, another) == (200, 429)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_the_engine_is_asked_for_no_more_than_is_left(gateway, name):
    opened = await gateway.open(limits={"tokens": 10})  # an echo of "hello" has 4 tokens

    for _ in range(2):
        assert (await gateway.chat(opened, "hello", **{name: 8}))[0] == 200

    assert [call.body[name] for call in gateway.engine.calls] == [8, 6]
    step = gateway.step(opened)
    assert (step.sampling_asked[name], step.sampling_applied[name]) == (8, 6)


async def test_prompt_and_answer_stay_within_the_tasks_context(gateway):
    opened = await gateway.open(limits={"context_tokens": 10})  # a prompt of "hello" has 4 tokens, and an echo has 4

    assert (await gateway.chat(opened, "hello"))[0] == 200
    assert (await gateway.chat(opened, "hello again", max_completion_tokens=9))[0] == 200
    assert (await gateway.chat(opened, "hello", max_tokens=2))[0] == 200
    status, answer = await gateway.chat(opened, "one two three four five six seven")

    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    bodies = [call.body for call in gateway.engine.calls]
    assert [body.get("max_tokens") for body in bodies] == [6, None, 2]
    assert bodies[1]["max_completion_tokens"] == 5


LONG = [1, 15, 16, 17, 20, 64_000]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wanted", LONG)
async def test_a_length_that_does_not_fit_is_lowered_to_the_engines_room(gateway, wanted, stream, name):
    gateway.engine.context_tokens = 20
    opened = await gateway.open()

    status, _ = await gateway.chat(opened, "hello", stream=stream, **{name: wanted})  # a prompt of 4 tokens
    status_of_long, answer = await gateway.chat(opened, "word " * 30, stream=stream, **{name: wanted})
    _, closed = await gateway.post(f"/rollouts/{opened['rollout_id']}/close", {})

    assert (status, status_of_long, answer["error"]["code"]) == (200, 400, "context_length_exceeded")
    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert steps[0].sampling_asked[name] == wanted
    assert steps[0].sampling_applied[name] == min(wanted, 16)
    assert closed["policy_fault"] == "context_full"


@pytest.mark.parametrize("dialect", ["chat/completions", "messages", "responses", "models/m:generateContent"])
@pytest.mark.parametrize("says", [{"context": False}, {"tokens": False}, {"context": False, "tokens": False}, {}])
async def test_an_engine_that_does_not_say_what_fits_decides_by_itself(gateway, monkeypatch, dialect, says):
    gateway.engine.context_tokens = 20
    if not says.get("context", True):
        monkeypatch.setattr(EngineControl, "read_context_tokens", lambda _: None)
    if not says.get("tokens", True):
        monkeypatch.setattr(Calls, "_count_at", fail_to_count)
    opened = await gateway.open()
    spoken = [{"role": "user", "content": "hello"}]
    fields = {
        "chat/completions": {"messages": spoken, "max_tokens": 32_000},
        "messages": {"messages": spoken, "max_tokens": 32_000},
        "responses": {"input": "hello", "max_output_tokens": 32_000},
        "models/m:generateContent": {
            "contents": [{"parts": [{"text": "hello"}]}],
            "generationConfig": {"maxOutputTokens": 32_000},
        },
    }[dialect]

    async with gateway.session.post(
        f"{opened['base_url']}/{dialect}",
        json={"model": "m", **fields},
        headers={"Authorization": f"Bearer {opened['api_key']}"},
    ) as reply:
        assert reply.status == 200, await reply.text()

    step = gateway.step(opened)
    assert (step.status, len(step.action.response_token_ids)) == ("ok", 4)


async def fail_to_count(*_):
    raise EngineError("it has no /tokenize")


async def test_a_judge_is_not_limited_by_the_policys_context(gateway):
    opened = await gateway.open(limits={"context_tokens": 4})

    status, _ = await gateway.chat(opened, "a long question to a judge", headers={"x-agent-layer-role": "aux"})

    assert status == 200


async def test_time_runs_from_the_opening(gateway):
    opened = await gateway.open(limits={"wall_seconds": 60.0})
    gateway.clock.advance(59.0)
    assert (await gateway.chat(opened, "hello"))[0] == 200
    gateway.clock.advance(1.0)

    status, answer = await gateway.chat(opened, "hello")

    assert (status, answer["error"]["code"]) == (429, "rollout_limit")
    assert "60 seconds" in answer["error"]["message"]


@pytest.fixture
async def running(settings, run_gateway):
    """A gateway whose clock runs."""
    async with run_gateway(
        settings.model_copy(update={"api_key": OPERATOR}), clock=SteppedClock(time.monotonic)
    ) as gateway:
        yield gateway


async def test_a_call_that_outlasts_the_time_is_cut_off(running, until):
    running.engine.token_seconds = 60
    opened = await running.open(limits={"wall_seconds": 60.0})
    running.clock.advance(59.5)

    status, answer = await running.chat(opened, "hello")

    assert (status, answer["error"]["code"]) == (429, "rollout_limit")
    assert running.step(opened).status == "aborted"
    await until(lambda: running.engine.num_running == 0)


async def test_a_stream_that_outlasts_the_time_ends(running):
    running.engine.token_seconds = 0.02
    running.engine.script = lambda _: "word " * 600
    opened = await running.open(limits={"wall_seconds": 60.0})
    running.clock.advance(60.0 - scaled(0.3))  # time for the first words

    with pytest.raises(aiohttp.ClientError):
        await running.chat(opened, "hello", stream=True)

    step = running.step(opened)
    assert step.status == "aborted"
    assert 0 < len(step.action.response_token_ids) < 600
    assert (await running.chat(opened, "hello"))[0] == 429


AUX = {"x-agent-layer-role": "aux"}


@given(
    calls=st.lists(st.booleans(), max_size=12),
    turns=st.none() | st.integers(1, 4),
    tokens=st.none() | st.integers(1, 20),
    sides=st.integers(1, 4),
)
def test_side_calls_and_the_policys_calls_spend_nothing_of_each_other(calls, turns, tokens, sides):
    clock, request = SteppedClock(), OpenRequest(task_id="t", limits=Limits(turns=turns, tokens=tokens))
    rollout = new_rollout(request, "r", clock=clock, max_side_calls=sides)
    num_policy = num_sides = 0
    for number, is_aux in enumerate(calls):
        is_spent = num_sides >= sides if is_aux else num_policy >= (turns or 99) or 5 * num_policy >= (tokens or 99)
        if is_spent:
            with pytest.raises(RefusedError, match="AGENT_LAYER_MAX_SIDE_CALLS" if is_aux else "model calls|tokens"):
                rollout.check_may_call(is_aux=is_aux)
            continue
        rollout.check_may_call(is_aux=is_aux)
        rollout.record_start(str(number), [], is_aux=is_aux)
        num_sampled = 0 if is_aux else 5
        rollout.record_end(
            EndedCall(str(number), num_sampled, is_of_policy=not is_aux, question_id=str(number), is_side_call=is_aux)
        )
        num_policy, num_sides = num_policy + (not is_aux), num_sides + is_aux


async def test_a_side_call_spends_no_turn_and_no_token_and_is_not_cut_short(gateway):
    opened = await gateway.open(limits={"turns": 1, "tokens": 4})  # an echo of "hello" has 4 tokens

    before = [await gateway.chat(opened, "a long title", headers=AUX, max_tokens=9) for _ in range(2)]
    policy = [(await gateway.chat(opened, "hello"))[0] for _ in range(2)]
    after = await gateway.chat(opened, "a title", headers=AUX, max_tokens=9)

    assert ([status for status, _ in [*before, after]], policy) == ([200] * 3, [200, 429])
    assert [call.body.get("max_tokens") for call in gateway.engine.calls] == [9, 9, None, 9]


async def test_side_calls_without_end_are_bounded(settings, run_gateway):
    few = settings.model_copy(update={"api_key": OPERATOR, "max_side_calls": 2})
    async with run_gateway(few) as gateway:
        opened = await gateway.open()
        works, gateway.engine.script = gateway.engine.script, fails_with(503)
        failed = [(await gateway.chat(opened, "title", headers=AUX))[0] for _ in range(2)]
        gateway.engine.script = works

        answers = [await gateway.chat(opened, "title", headers=AUX) for _ in range(3)]

        assert failed == [503] * 2
        assert [status for status, _ in answers] == [200, 200, 429]
        assert "AGENT_LAYER_MAX_SIDE_CALLS" in answers[-1][1]["error"]["message"]
        assert (await gateway.chat(opened, "hello"))[0] == 200


async def test_time_limits_side_calls(gateway):
    opened = await gateway.open(limits={"wall_seconds": 60.0})
    gateway.clock.advance(60.0)

    assert (await gateway.chat(opened, "a title", headers=AUX))[0] == 429
