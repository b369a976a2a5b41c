"""LiteLLM takes seconds to import, which collecting the tests must not."""

import asyncio
import inspect
import json

import pytest

import tracer
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread

pytestmark = pytest.mark.filterwarnings("ignore::Warning:litellm", "ignore::Warning:pydantic")
QUESTION = [{"role": "user", "content": "what is the answer"}]


@pytest.fixture(scope="module")
def litellm():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        litellm = pytest.importorskip("litellm")
        litellm.suppress_debug_info = True
        yield litellm


@pytest.fixture(autouse=True)
async def _close_clients(litellm):
    """LiteLLM keeps clients of a loop that closes after the test."""
    yield
    for client in litellm.in_memory_llm_clients_cache.cache_dict.values():
        if inspect.isawaitable(closing := client.close()):
            await closing
    litellm.in_memory_llm_clients_cache.flush_cache()


@pytest.fixture(scope="module")
def engine():
    with serve_in_thread(ScriptedEngine(script=lambda _: "forty two", model="m")) as engine:
        yield engine


@pytest.fixture
def openai_like(engine):
    return {"model": "openai/m", "api_base": f"{engine.url}/v1", "api_key": "own", "messages": QUESTION}


@pytest.fixture
def claude(dialects):
    """A provider that LiteLLM talks to without a client that we trace."""
    return {"model": "anthropic/m", "api_base": dialects.url, "api_key": "own", "messages": QUESTION}


@pytest.fixture(params=["openai_like", "claude"])
def read_question(request):
    return request.getfixturevalue(request.param)


def read_message(trajectory):
    return [(step.status, step.action.message["content"]) for step in trajectory.steps]


def test_a_completion_is_one_step_by_every_way_to_make_it(litellm, read_question):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        answer = litellm.completion(**read_question)
        assert answer.choices[0].message.content == "forty two"

    (step,) = captured.trajectory.steps
    assert read_message(captured.trajectory) == [("ok", "forty two")]
    assert [json.loads(captured.trajectory.contents[key]) for key in step.state.messages] == QUESTION


def test_a_stream_is_one_step_and_an_abandoned_one_is_aborted(litellm, read_question):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        assert "".join(
            chunk.choices[0].delta.content or "" for chunk in litellm.completion(**read_question, stream=True)
        )
        for chunk in litellm.completion(**read_question, stream=True):
            if chunk.choices[0].delta.content:
                break

    whole, abandoned = read_message(captured.trajectory)
    assert whole == ("ok", "forty two")
    assert abandoned[0] == "aborted"
    assert "forty two".startswith(abandoned[1])


async def test_async_completions_and_streams_are_steps(litellm, read_question):
    with tracer.testing.capture() as captured:
        async with tracer.rollout(task="t"):
            await litellm.acompletion(**read_question)
            assert [chunk async for chunk in await litellm.acompletion(**read_question, stream=True)]
            await asyncio.gather(*(litellm.acompletion(**read_question) for _ in range(3)))

    assert read_message(captured.trajectory) == [("ok", "forty two")] * 5


async def test_a_router_is_traced_and_its_fallback_is_a_step_of_its_own(litellm, openai_like):
    sound = {name: value for name, value in openai_like.items() if name != "messages"}
    models = [
        {"model_name": "broken", "litellm_params": {**sound, "model": "openai/none"}},
        {"model_name": "sound", "litellm_params": sound},
    ]
    router = litellm.Router(model_list=models, fallbacks=[{"broken": ["sound"]}], num_retries=0)
    with tracer.testing.capture() as captured:
        async with tracer.rollout(task="t"):
            await router.acompletion(model="broken", messages=QUESTION)

    assert [step.status for step in captured.trajectory.steps] == ["error", "ok"]


async def test_responses_are_steps(litellm, dialects):
    read_question = {"model": "openai/m", "api_base": f"{dialects.url}/v1", "api_key": "own", "input": "how many"}
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        await asyncio.to_thread(litellm.responses, **read_question)
        assert await asyncio.to_thread(lambda: list(litellm.responses(**read_question, stream=True)))
        await litellm.aresponses(**read_question)

    assert read_message(captured.trajectory) == [("ok", "forty two")] * 3


def test_a_name_that_was_imported_before_is_traced_too(litellm, openai_like):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        litellm.main.completion(openai_like.pop("model"), openai_like.pop("messages"), **openai_like)

    assert read_message(captured.trajectory) == [("ok", "forty two")]


async def test_32_rollouts_at_a_time_keep_apart_whatever_the_provider(
    litellm, read_question, engine, dialects, rollout_at
):
    url, engine.calls[:] = engine.url, []

    async def live(number):
        with tracer.enter_rollout(rollout_at(url, captured, f"r{number}")):
            question = [{"role": "user", "content": f"rollout {number}"}]
            await litellm.acompletion(
                **{**read_question, "messages": question, "model": "m", "custom_llm_provider": "openai"}
            )
            stream = await litellm.acompletion(**{**read_question, "messages": question, "model": "m"}, stream=True)
            assert [chunk async for chunk in stream]

    with tracer.testing.capture() as captured:
        await asyncio.gather(*map(live, range(32)))

    assert dialects.seen == []
    assert len(engine.calls) == 64
    for call in engine.calls:
        number = call.body["messages"][0]["content"].split()[1]
        assert call.headers["Authorization"] == f"Bearer key-of-r{number}"
        assert call.headers["x-agent-layer-rollout"] == f"r{number}-0"
    assert len({call.headers["x-agent-layer-call"] for call in engine.calls}) == 64
    assert {record.call_id for record in captured.records} == {
        call.headers["x-agent-layer-call"] for call in engine.calls
    }


@pytest.mark.parametrize("name", ["completion", "acompletion"])
async def test_arguments_that_are_wrong_are_as_wrong_as_without_us(litellm, openai_like, name):
    with tracer.testing.capture(), tracer.rollout(task="t"), pytest.raises(TypeError, match="multiple values"):
        await getattr(litellm, name)("openai/m", QUESTION, **openai_like)
