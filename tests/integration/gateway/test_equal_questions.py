"""n equal questions are n samples, however clients give up and engines fail: the engine's own book decides."""

import asyncio
import itertools

import msgspec
import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings, strategies as st

from trainer_adapter.data import samples_of

from ...profiles import num_examples
from ...waiting import until, within

TICK_SECONDS = 0.004
NAMES = {
    "nothing": lambda _: {},
    "call id": lambda number: {"x-agent-layer-call": f"call-{number}"},
    "key": lambda number: {"idempotency-key": f"key-{number}"},
    "agent": lambda _: {"x-agent-layer-agent": "helper"},
}
"""What a client's requests name, by its number."""


class Client(msgspec.Struct, frozen=True):
    names: str
    begins_at: int
    """In ticks; an answer takes four."""
    gives_up_after: list[int]
    """Ticks, of its first tries; the one after them waits."""


clients = st.builds(Client, st.sampled_from(sorted(NAMES)), st.integers(0, 4), st.lists(st.integers(1, 6), max_size=2))


class Book:
    """Answers every call with words that no other gets, and fails those that the test names."""

    def __init__(self, failing):
        self.failing, self.numbers = failing, itertools.count()

    def __call__(self, _):
        number = next(self.numbers)
        match self.failing.get(number):
            case None:
                return f"this is sample {number}"
            case "cut":
                return {"content": f"this is sample {number}", "error": {"message": "cut"}}
            case status:
                raise {429: web.HTTPTooManyRequests, 500: web.HTTPInternalServerError, 503: web.HTTPServiceUnavailable}[
                    status
                ]


async def ask(gateway, opened, number, client, *, stream):
    """Ask as an SDK does, with a new try after each failure; return the text."""
    await asyncio.sleep(client.begins_at * TICK_SECONDS)
    for tries in itertools.count():
        headers = NAMES[client.names](number) | {"x-stainless-retry-count": str(tries)}
        limit = client.gives_up_after[tries] * TICK_SECONDS if tries < len(client.gives_up_after) else None
        try:
            async with asyncio.timeout(limit):  # wait: the patience of a client
                status, answer = await gateway.chat(opened, "hello", stream=stream, headers=headers)
        except TimeoutError:
            continue
        chunks = answer if isinstance(answer, list) else [answer]
        if status == 200 and not any("error" in chunk for chunk in chunks):
            parts = [choice.get("delta", choice.get("message")) for chunk in chunks for choice in chunk["choices"]]
            return "".join(part.get("content") or "" for part in parts)
    raise AssertionError


@pytest.fixture
def kept(gateway):
    """The gateway, out of sight: Hypothesis would print all of it."""
    return lambda: gateway


@settings(
    max_examples=num_examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.lists(clients, min_size=2, max_size=6),
    st.dictionaries(st.integers(0, 8), st.sampled_from(["cut", 429, 500, 503]), max_size=4),
    st.booleans(),
)
async def test_each_client_has_a_sample_of_its_own(kept, asking, failing, stream):
    gateway = kept()
    failing = {number: how for number, how in failing.items() if stream or how != "cut"}
    gateway.engine.token_seconds, gateway.engine.script = TICK_SECONDS, Book(failing)
    gateway.engine.calls.clear()
    opened = await gateway.open(group_id="g")

    async with within(60, "answers for all clients"):
        reported = [ask(gateway, opened, number, client, stream=stream) for number, client in enumerate(asking)]
        answers = await asyncio.gather(*reported)
    await until(lambda: len(gateway.log.parts("end")) == len(gateway.log.parts("start")))  # clients hang up unheard

    trajectory = gateway.log.trajectory(opened["trajectory_id"])
    good = [step for step in trajectory.steps if step.status == "ok"]
    book = [tuple(call.token_ids[0]) for call in gateway.engine.calls]
    recorded = [tuple(step.action.response_token_ids) for step in good]
    assert len(set(answers)) == len(asking)
    assert {step.action.message["content"] for step in good} >= set(answers)
    assert len(set(recorded)) == len(recorded) <= len(asking) + sum(len(one.gives_up_after) for one in asking)
    assert set(recorded) <= set(book)
    trained = sum(sum(sample.loss_mask) for sample in samples_of(trajectory).samples)
    assert trained == sum(map(len, recorded))


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_was_delivered_is_not_given_to_an_equal_question(gateway, stream):
    gateway.engine.script = Book({})
    opened = await gateway.open()

    one = await gateway.chat(opened, "hello", stream=stream, headers={"x-stainless-retry-count": "0"})
    two = await gateway.chat(opened, "hello", stream=stream, headers={"x-stainless-retry-count": "1"})

    assert one != two
    assert len(gateway.engine.calls) == len(gateway.log.trajectory(opened["trajectory_id"]).steps) == 2


async def test_a_retry_takes_over_the_call_that_its_client_left(gateway, hold):
    go_on, gateway.engine.script = hold(gateway.engine), Book({})
    gateway.engine.token_seconds = 0.01
    opened = await gateway.open()

    others = [asyncio.create_task(gateway.chat(opened, "hello")) for _ in range(2)]
    await until(lambda: len(gateway.engine.calls) == 2)
    others.append(left := asyncio.create_task(gateway.chat(opened, "hello")))
    await until(lambda: len(gateway.engine.calls) == 3)
    left.cancel()
    again = asyncio.create_task(gateway.chat(opened, "hello", headers={"x-stainless-retry-count": "1"}))
    await asyncio.sleep(0.01)
    go_on.set()
    answers = await asyncio.gather(*others[:2], again)

    texts = [reported["choices"][0]["message"]["content"] for _, reported in answers]
    assert len(set(texts)) == 3
    good = [step for step in gateway.log.trajectory(opened["trajectory_id"]).steps if step.status == "ok"]
    assert sorted(step.action.message["content"] for step in good) == sorted(texts)
