"""However attempts begin, join, give up and come again, those of one identity make one good step."""

import asyncio
import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from ...profiles import num_examples
from ...waiting import until

TICK_SECONDS = 0.004
IDENTITIES = {
    "plain": {},
    "call": {"x-agent-layer-call": "call-1"},
    "other-call": {"x-agent-layer-call": "call-2"},
    "key": {"idempotency-key": "key-1"},
}
"""Ways in which attempts identify themselves; attempts with one name ask the same."""


class Attempt(msgspec.Struct, frozen=True):
    identity: str
    begins_at: int
    """In ticks; an answer takes four."""
    gives_up_after: int | None


attempts = st.builds(
    Attempt,
    st.sampled_from(sorted(IDENTITIES)),
    st.integers(0, 8),
    st.none() | st.integers(1, 5),
)


async def make(gateway, opened, attempt, *, stream):
    """Return the text of the answer; None if the attempt gave up."""
    await asyncio.sleep(attempt.begins_at * TICK_SECONDS)
    limit = None if attempt.gives_up_after is None else attempt.gives_up_after * TICK_SECONDS
    try:
        async with asyncio.timeout(limit):  # wait: the patience of a client
            status, reported = await gateway.chat(
                opened, attempt.identity, stream=stream, headers=IDENTITIES[attempt.identity]
            )
    except TimeoutError:
        return None
    assert status == 200
    chunks = reported if isinstance(reported, list) else [reported]
    parts = [choice.get("delta", choice.get("message")) for chunk in chunks for choice in chunk["choices"]]
    return "".join(part.get("content") or "" for part in parts)


async def settled(gateway, opened):
    """Good steps by the identity whose question they answer, once nothing runs any more."""
    await until(lambda: len(gateway.log.parts("end")) == len(gateway.log.parts("start")))  # clients hang up unheard
    trajectory = gateway.log.trajectory(opened["trajectory_id"])
    questions = [json.loads(trajectory.contents[step.state.messages[-1]])["content"] for step in trajectory.steps]
    return [name for name, step in zip(questions, trajectory.steps, strict=True) if step.status == "ok"]


@pytest.fixture
def kept(gateway):
    """The gateway, out of sight: Hypothesis would print all of it."""
    return lambda: gateway


@settings(
    max_examples=num_examples(60, 40), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(attempts, min_size=1, max_size=8), st.booleans())
async def test_attempts_of_one_identity_make_one_good_step(kept, tried, stream):
    gateway = kept()
    gateway.engine.token_seconds = TICK_SECONDS
    opened = await gateway.open()

    answers = await asyncio.gather(*(make(gateway, opened, attempt, stream=stream) for attempt in tried))
    good = await settled(gateway, opened)

    for attempt, answer in zip(tried, answers, strict=True):
        assert answer in (None, f"you said: {attempt.identity}")
    for name in {attempt.identity for attempt in tried} - {"plain"}:
        stayed = any(answer for attempt, answer in zip(tried, answers, strict=True) if attempt.identity == name)
        assert good.count(name) <= 1
        assert good.count(name) == 1 or not stayed
    plain = [answer for attempt, answer in zip(tried, answers, strict=True) if attempt.identity == "plain"]
    assert len(plain) - plain.count(None) <= good.count("plain") <= len(plain)
