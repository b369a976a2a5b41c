import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

import tracer
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread

from ...waiting import join

QUESTION = [{"role": "user", "content": "what is the answer"}]


@pytest.fixture(scope="module")
def engine():
    with serve_in_thread(ScriptedEngine(script=lambda prompt: f"forty two {prompt.choice}")) as engine:
        yield engine


@pytest.fixture
def client(engine):
    with openai.OpenAI(base_url=f"{engine.url}/v1", api_key="own", max_retries=2) as client:
        yield client


def ask(client, **options):
    return client.chat.completions.create(model="scripted", messages=QUESTION, **options)


def read_messages(trajectory, step):
    return [json.loads(trajectory.contents[key]) for key in step.state.messages]


def test_without_a_gateway_a_call_is_recorded_as_text(client):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        answer = ask(client, temperature=0.5)

    (step,) = captured.trajectory.steps
    assert step.action.message["content"] == answer.choices[0].message.content == "forty two 0"
    assert read_messages(captured.trajectory, step) == QUESTION
    assert (step.model, step.sampling_asked) == ("scripted", {"temperature": 0.5})
    assert (step.status, step.capture_level, step.action.finish_reason) == ("ok", "text", "stop")
    assert step.usage.response_tokens == answer.usage.completion_tokens


def test_outside_a_rollout_nothing_is_recorded(client):
    with tracer.testing.capture() as captured:
        ask(client)

    assert captured.records == []


def test_every_choice_is_a_step(client):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        ask(client, n=3)

    spoken = [step.action.message["content"] for step in captured.trajectory.steps]
    assert spoken == ["forty two 0", "forty two 1", "forty two 2"]


def test_a_stream_is_recorded_before_its_last_chunk_is_handed_on(client):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        text = ""
        for chunk in ask(client, stream=True):
            text += chunk.choices[0].delta.content or ""
        (step,) = captured.trajectory.steps

    assert step.action.message["content"] == text == "forty two 0"
    assert (step.status, step.action.finish_reason) == ("ok", "stop")


def test_an_abandoned_stream_is_an_aborted_step(client):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        for chunk in ask(client, stream=True):
            if chunk.choices[0].delta.content:
                break
        del chunk

    (step,) = captured.trajectory.steps
    assert step.status == "aborted"
    assert step.action.message["content"] == "forty"


async def test_async_answers_and_streams_are_recorded_alike(engine):
    async with openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="own") as client:
        with tracer.testing.capture() as captured:
            async with tracer.rollout(task="t"):
                await ask(client)
                stream = await ask(client, stream=True)
                assert [chunk async for chunk in stream]
                await client.chat.completions.with_raw_response.create(model="scripted", messages=QUESTION)

    steps = captured.trajectory.steps
    assert [step.action.message["content"] for step in steps] == ["forty two 0"] * 3
    assert [step.parent_call for step in steps] == [None, steps[0].call_id, steps[1].call_id]


def test_raw_and_raw_streamed_responses_are_recorded(client):
    raw = client.chat.completions.with_raw_response
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        assert raw.create(model="scripted", messages=QUESTION).parse().choices
        assert list(raw.create(model="scripted", messages=QUESTION, stream=True).parse())

    assert [step.action.message["content"] for step in captured.trajectory.steps] == ["forty two 0"] * 2


def test_a_response_that_the_caller_reads_itself_is_a_step_all_the_same(client):
    streamed = client.chat.completions.with_streaming_response
    with (
        tracer.testing.capture() as captured,
        tracer.rollout(task="t"),
        streamed.create(model="scripted", messages=QUESTION) as response,
    ):
        assert b"forty" in response.read()

    (step,) = captured.trajectory.steps
    assert step.findings == ["answer_not_read"]


def test_a_failed_call_is_an_error_and_the_error_goes_on(client):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"), pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="no-such-model", messages=QUESTION)

    (step,) = captured.trajectory.steps
    assert step.status == "error"
    assert "no-such-model" in step.error


async def test_a_cancelled_call_is_aborted(until):
    with serve_in_thread(ScriptedEngine(token_seconds=60.0)) as slow, tracer.testing.capture() as captured:
        async with openai.AsyncOpenAI(base_url=f"{slow.url}/v1", api_key="own") as client:
            with tracer.rollout(task="t"):
                asking = asyncio.create_task(ask(client))
                await until(lambda: slow.num_running)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking

    (step,) = captured.trajectory.steps
    assert step.status == "aborted"


def test_a_message_is_stored_once_however_often_it_is_sent(client):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        for _ in range(3):
            ask(client)

    stored = [record.hash for record in captured.records if hasattr(record, "body")]
    assert len(stored) == len(set(stored)) == 1


def test_threads_and_pools_stay_in_the_rollout_that_started_them(client):
    with tracer.testing.capture() as captured, ThreadPoolExecutor(1) as pool:
        for task in ("a", "b"):
            with tracer.rollout(task=task):
                pool.submit(ask, client).result()
                thread = threading.Thread(target=ask, args=(client,))
                thread.start()
                join(thread)
        pool.submit(ask, client).result()

    assert [len(trajectory.steps) for trajectory in captured.trajectories] == [2, 2]
