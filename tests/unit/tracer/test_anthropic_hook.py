import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import anthropic
import pytest

import tracer

TOOLS = [{"name": "add", "description": "adds", "input_schema": {"type": "object", "properties": {}}}]
ADD = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": TOOLS[0]["input_schema"]}}


@pytest.fixture
def client(dialects):
    with anthropic.Anthropic(base_url=dialects.url, api_key="own", max_retries=0) as client:
        yield client


def ask(client, text, **options):
    return client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": text}], **options)


def read_contents(trajectory, step):
    return [json.loads(trajectory.contents[key]) for key in step.state.messages]


def test_a_message_is_recorded_in_the_words_of_chat(client):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        ask(client, "how many", system="be brief", stop_sequences=["."])

    (step,) = captured.trajectory.steps
    assert read_contents(captured.trajectory, step) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "how many"},
    ]
    assert step.action.message == {"role": "assistant", "content": "forty two"}
    assert (step.sampling_asked, step.action.finish_reason) == ({"max_tokens": 9, "stop_sequences": ["."]}, "stop")
    assert (step.usage.prompt_tokens, step.usage.response_tokens) == (5, 2)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_tool_calls_and_their_results_are_messages(client, is_streamed):
    def say(messages):
        fields = {"model": "m", "max_tokens": 9, "messages": messages, "tools": TOOLS}
        if not is_streamed:
            return client.messages.create(**fields)
        with client.messages.stream(**fields) as stream:
            return stream.get_final_message()

    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        spoken = [{"role": "user", "content": "add"}]
        spoken += [{"role": "assistant", "content": say(spoken).content}]
        result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "42"}]}
        say([*spoken, {"role": "user", "content": [result]}])

    one, two = captured.trajectory.steps
    assert one.action.finish_reason == "tool_calls"
    assert json.loads(captured.trajectory.contents[one.state.tools]) == [ADD]
    assert read_contents(captured.trajectory, two) == [
        {"role": "user", "content": "add"},
        one.action.message,
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]


def test_streams_of_both_kinds_are_steps_and_abandoned_ones_are_aborted(client):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        for event in ask(client, "one", stream=True):
            if event.type == "message_stop":
                assert [step.status for step in captured.trajectory.steps] == ["ok"]
        question = [{"role": "user", "content": "two"}]
        with client.messages.stream(model="m", max_tokens=9, messages=question) as stream:
            assert "".join(stream.text_stream) == "forty two"
        for event in ask(client, "three", stream=True):
            if event.type == "content_block_delta":
                break

    steps = captured.trajectory.steps
    assert [(step.status, step.action.message["content"]) for step in steps] == [
        ("ok", "forty two"),
        ("ok", "forty two"),
        ("aborted", "forty"),
    ]


async def test_async_raw_and_beta_calls_are_steps_too(dialects):
    async with anthropic.AsyncAnthropic(base_url=dialects.url, api_key="own") as client:
        question = [{"role": "user", "content": "one"}]
        with tracer.testing.capture() as captured:
            async with tracer.rollout(task="t"):
                assert [event async for event in await ask(client, "one", stream=True)]
                async with client.messages.stream(model="m", max_tokens=9, messages=question) as stream:
                    await stream.get_final_message()
                await client.messages.with_raw_response.create(model="m", max_tokens=9, messages=question)
                await client.beta.messages.create(model="m", max_tokens=9, messages=question)

    steps = captured.trajectory.steps
    assert [(step.status, step.action.message["content"]) for step in steps] == [("ok", "forty two")] * 4


def test_a_failed_call_is_an_error_and_the_error_goes_on():
    with (
        tracer.testing.capture() as captured,
        anthropic.Anthropic(base_url="http://127.0.0.1:9", api_key="own", max_retries=0) as client,
        tracer.rollout(task="t"),
        pytest.raises(anthropic.APIConnectionError),
    ):
        ask(client, "one")

    (step,) = captured.trajectory.steps
    assert step.status == "error"


def test_with_a_gateway_the_call_goes_to_the_rollouts_address_with_its_key(dialects, rollout_at):
    with (
        tracer.testing.capture() as captured,
        anthropic.Anthropic(base_url="http://127.0.0.1:9", api_key="own", max_retries=0) as client,
        tracer.enter_rollout(rollout_at(f"{dialects.url}/r/r-0", captured)),
    ):
        ask(client, "one")

    ((path, headers, _),) = dialects.seen
    (part,) = captured.records
    assert path == "/r/r-0/v1/messages"
    assert (headers["X-Api-Key"], headers["x-agent-layer-rollout"]) == ("key-of-r", "r-0")
    assert (part.call_id, part.phase) == (headers["x-agent-layer-call"], "start")


async def test_32_rollouts_at_a_time_through_one_client_keep_apart(dialects, rollout_at):
    async def live(client, number):
        with tracer.enter_rollout(rollout_at(f"{dialects.url}/r/r{number}-0", captured, f"r{number}")):
            await ask(client, f"rollout {number}")
            async for _ in await ask(client, f"rollout {number}", stream=True):
                pass

    async with anthropic.AsyncAnthropic(base_url="http://127.0.0.1:9", api_key="own") as client:
        with tracer.testing.capture() as captured:
            await asyncio.gather(*(live(client, number) for number in range(32)))

    assert len(dialects.seen) == 64
    for path, headers, body in dialects.seen:
        number = body["messages"][0]["content"].split()[1]
        assert (path, headers["X-Api-Key"]) == (f"/r/r{number}-0/v1/messages", f"key-of-r{number}")


def test_threads_stay_in_their_rollout(client):
    with tracer.testing.capture() as captured, ThreadPoolExecutor(1) as pool:
        for task in ("a", "b"):
            with tracer.rollout(task=task):
                pool.submit(ask, client, "one").result()

    assert [len(trajectory.steps) for trajectory in captured.trajectories] == [1, 1]


def test_what_the_server_would_refuse_is_refused_by_the_server(client):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        client.messages.create(model="m", max_tokens=9, messages=["hello"], tools=["add"])

    (step,) = captured.trajectory.steps
    assert read_contents(captured.trajectory, step) == [{"content": "hello"}]
