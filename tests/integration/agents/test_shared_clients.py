"""Clients that are built once, for an unused address, and shared by many concurrent rollouts."""

import asyncio
import json
from contextlib import asynccontextmanager

import anthropic
import openai
import pytest

import tracer
from agent_layer.recorder.log import open_recorder
from agent_layer.store import open_store
from tracer.session import Session, use_session

pytestmark = [
    pytest.mark.filterwarnings("ignore::Warning:litellm", "ignore::Warning:pydantic"),
    pytest.mark.timeout(300),
]
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def tracing(gateway):
    with use_session(Session(settings=gateway, sink=open_recorder(gateway))):
        yield gateway


@asynccontextmanager
async def chat():
    async with openai.AsyncOpenAI(base_url=f"{NOWHERE}/v1", api_key="none", max_retries=0) as client:

        async def ask(text):
            async for _ in await client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": text}], stream=True
            ):
                pass

        yield ask


@asynccontextmanager
async def responses():
    async with openai.AsyncOpenAI(base_url=f"{NOWHERE}/v1", api_key="none", max_retries=0) as client:

        async def ask(text):
            async with client.responses.stream(model="any", input=text) as stream:
                await stream.get_final_response()

        yield ask


@asynccontextmanager
async def messages():
    async with anthropic.AsyncAnthropic(base_url=NOWHERE, api_key="none", max_retries=0) as client:

        async def ask(text):
            question = [{"role": "user", "content": text}]
            async with client.messages.stream(model="any", max_tokens=99, messages=question) as stream:
                await stream.get_final_message()

        yield ask


@asynccontextmanager
async def broker():
    import litellm  # noqa: PLC0415  # takes seconds, which collecting the tests must not

    async def ask(text):
        await litellm.acompletion(model="anthropic/any", messages=[{"role": "user", "content": text}])

    yield ask


@pytest.mark.parametrize("shared_client", [chat, responses, messages, broker])
async def test_32_rollouts_at_a_time_have_their_own_steps_and_no_others(tracing, engine, monkeypatch, shared_client):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")

    async def live(ask, number):
        async with tracer.rollout(task=f"t{number}") as rollout:
            await ask(f"rollout {number} first")
            await ask(f"rollout {number} second")
        return rollout.trajectory_id

    async with shared_client() as ask:
        trajectory_ids = await asyncio.gather(*(live(ask, number) for number in range(32)))

    assert len(engine.calls) == 64
    for number, trajectory_id in enumerate(trajectory_ids):
        trajectory = await asyncio.to_thread(open_store(tracing).get, trajectory_id)
        asked = [json.loads(trajectory.contents[step.state.messages[0]])["content"] for step in trajectory.steps]
        assert asked == [f"rollout {number} first", f"rollout {number} second"]
        assert {(step.capture_level, step.status) for step in trajectory.steps} == {("tokens", "ok")}
        assert trajectory.steps[1].parent_call == trajectory.steps[0].call_id
