import json

import openai
import pytest
from pydantic import BaseModel

import tracer

TOOLS = [{"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}, "strict": False}]


@pytest.fixture
def client(dialects):
    with openai.OpenAI(base_url=f"{dialects.url}/v1", api_key="own", max_retries=0) as client:
        yield client


def read_contents(trajectory, step):
    return [json.loads(trajectory.contents[key]) for key in step.state.messages]


def test_a_response_is_recorded_in_the_words_of_chat(client):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        answer = client.responses.create(model="m", input="how many", instructions="be brief", temperature=0.5)

    (step,) = captured.trajectory.steps
    assert read_contents(captured.trajectory, step) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "how many"},
    ]
    assert step.action.message == {"role": "assistant", "content": answer.output_text}
    assert (step.sampling_asked, step.action.finish_reason, step.status) == ({"temperature": 0.5}, "stop", "ok")
    assert (step.usage.prompt_tokens, step.usage.response_tokens) == (5, 2)


def test_tool_calls_and_their_results_are_messages(client):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        spoken = [{"role": "user", "content": [{"type": "input_text", "text": "add"}]}]
        first = client.responses.create(model="m", input=spoken, tools=TOOLS)
        spoken += [*first.output, {"type": "function_call_output", "call_id": "c1", "output": "42"}]
        client.responses.create(model="m", input=spoken, tools=TOOLS)

    one, two = captured.trajectory.steps
    assert one.action.finish_reason == "tool_calls"
    assert read_contents(captured.trajectory, two) == [
        {"role": "user", "content": "add"},
        one.action.message,
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]
    assert one.state.tools == two.state.tools


def test_streams_are_recorded_before_their_last_event_and_abandoned_ones_are_aborted(client):
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        for event in client.responses.create(model="m", input="one", stream=True):
            if event.type == "response.completed":
                assert [step.status for step in captured.trajectory.steps] == ["ok"]
        with client.responses.stream(model="m", input="two") as stream:
            assert stream.get_final_response().output_text == "forty two"
        for event in client.responses.create(model="m", input="three", stream=True):
            if event.type == "response.output_text.delta":
                break

    steps = captured.trajectory.steps
    assert [(step.status, step.action.message["content"]) for step in steps] == [
        ("ok", "forty two"),
        ("ok", "forty two"),
        ("aborted", "forty"),
    ]


def test_parsed_and_raw_responses_are_steps(client):
    class Count(BaseModel):
        count: int

    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        raw = client.responses.with_raw_response.create(model="m", input="one")
        assert raw.parse().output_text == "forty two"
        assert client.responses.parse(model="m", input="two", text_format=Count).output_parsed == Count(count=42)

    assert [step.action.message["content"] for step in captured.trajectory.steps] == ["forty two", '{"count": 42}']


async def test_async_clients_too(dialects):
    async with openai.AsyncOpenAI(base_url=f"{dialects.url}/v1", api_key="own") as client:
        with tracer.testing.capture() as captured:
            async with tracer.rollout(task="t"):
                await client.responses.create(model="m", input="one")
                async with client.responses.stream(model="m", input="two") as stream:
                    assert (await stream.get_final_response()).output_text == "forty two"

    assert [step.action.message["content"] for step in captured.trajectory.steps] == ["forty two"] * 2


def test_with_a_gateway_the_call_goes_to_the_rollouts_address_and_the_gateway_records_it(dialects, rollout_at):
    with (
        tracer.testing.capture() as captured,
        openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="own", max_retries=0) as client,
    ):
        rollout = rollout_at(f"{dialects.url}/r/r-0", captured)
        with tracer.enter_rollout(rollout):
            client.responses.create(model="m", input="one")

    ((path, headers, _),) = dialects.seen
    (part,) = captured.records
    assert path == "/r/r-0/v1/responses"
    assert (headers["Authorization"], headers["x-agent-layer-rollout"]) == ("Bearer key-of-r", "r-0")
    assert (part.call_id, part.phase, part.state.messages) == (headers["x-agent-layer-call"], "start", None)
    assert headers["traceparent"].split("-")[1] == rollout.trace_id
