"""No answer is lost, whatever client asked and whatever it makes of the answer: answers that do not parse, clients of
cloud platforms, reasoning, calls that fail."""

import contextlib
import json

import anthropic
import openai
import pytest
from langchain_core.exceptions import OutputParserException
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic import BaseModel, ValidationError

import tracer

from .conftest import THOUGHT

ANSWER = "forty two"
QUESTION = [{"role": "user", "content": "how many"}]


class Total(BaseModel):
    """None of the server's answers is one."""

    total: int


def make_clients(url, base):
    """Clients of each kind in front of one server, by name; ``base`` is the address of those without a platform."""
    azure = {"azure_endpoint": url, "api_version": "v", "api_key": "own", "max_retries": 0}
    plain = {"api_key": "own", "max_retries": 0}
    aws = {"aws_access_key": "a", "aws_secret_key": "b", "aws_region": "eu-west-1", "base_url": url, "max_retries": 0}
    vertex = {"project_id": "p", "region": "r", "access_token": "own", "base_url": url, "max_retries": 0}
    return {
        "openai": (openai.OpenAI, openai.AsyncOpenAI, {"base_url": f"{base}/v1", **plain}),
        "azure": (openai.AzureOpenAI, openai.AsyncAzureOpenAI, azure),
        "anthropic": (anthropic.Anthropic, anthropic.AsyncAnthropic, {"base_url": base, **plain}),
        "bedrock": (anthropic.AnthropicBedrock, anthropic.AsyncAnthropicBedrock, aws),
        "vertex": (anthropic.AnthropicVertex, anthropic.AsyncAnthropicVertex, vertex),
        "foundry": (anthropic.AnthropicFoundry, anthropic.AsyncAnthropicFoundry, {"base_url": url, **plain}),
    }


KINDS = [*make_clients("", "")]


async def finish(result):
    """Await what an async client returns; a sync client has returned it."""
    return await result if hasattr(result, "__await__") else result


async def drain(stream):
    if hasattr(stream, "__aiter__"):
        return [event async for event in stream]
    return list(stream)


def ask(client, **options):
    if isinstance(client, openai.OpenAI | openai.AsyncOpenAI):
        return client.chat.completions.create(model="m", messages=QUESTION, **options)
    return client.messages.create(model="m", max_tokens=9, messages=QUESTION, **options)


@contextlib.asynccontextmanager
async def opened(clients, kind, *, is_async):
    sync_kind, async_kind, options = clients[kind]
    client = (async_kind if is_async else sync_kind)(**options)
    try:
        yield client
    finally:
        await finish(client.close())


MANNERS = [(is_async, is_streamed) for is_async in (False, True) for is_streamed in (False, True)]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_clients_of_every_platform_are_recorded(kind, dialects):
    clients = make_clients(dialects.url, dialects.url)
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        for is_async, is_streamed in MANNERS:
            async with opened(clients, kind, is_async=is_async) as client:
                answer = await finish(ask(client, stream=is_streamed))
                assert not is_streamed or await drain(answer)

    steps, read = captured.trajectory.steps, captured.trajectory.contents
    assert [step.action.message for step in steps] == [{"role": "assistant", "content": ANSWER}] * len(MANNERS)
    assert {(step.model, step.action.finish_reason, step.status) for step in steps} == {("scripted", "stop", "ok")}
    assert [[json.loads(read[name]) for name in step.state.messages] for step in steps] == [QUESTION] * len(MANNERS)


@pytest.mark.parametrize("kind", KINDS)
async def test_with_a_gateway_every_platform_asks_it_in_the_plain_dialect(kind, dialects, rollout_at):
    nowhere = "http://127.0.0.1:9"
    clients = make_clients(nowhere, nowhere)
    with tracer.testing.capture() as captured:
        for is_async, is_streamed in MANNERS:
            async with opened(clients, kind, is_async=is_async) as client:
                with tracer.enter_rollout(rollout_at(f"{dialects.url}/r/r-0", captured)):
                    answer = await finish(ask(client, stream=is_streamed))
                    assert not is_streamed or ANSWER.split(maxsplit=1)[0] in str(await drain(answer))

    route = "chat/completions" if "Open" in str(clients[kind][0]) else "messages"
    assert len(dialects.seen) == len(MANNERS)
    for path, headers, body in dialects.seen:
        assert (path, body["model"]) == (f"/r/r-0/v1/{route}", "m")
        assert "anthropic_version" not in body
        keys = [value for name, value in headers.items() if name.lower() in ("authorization", "x-api-key", "api-key")]
        assert {value.removeprefix("Bearer ") for value in keys} == {"key-of-r"}
        assert headers["x-agent-layer-rollout"] == "r-0"


PARSERS = {
    "chat": (
        "openai",
        lambda client: client.chat.completions.parse(model="m", messages=QUESTION, response_format=Total),
    ),
    "responses": ("openai", lambda client: client.responses.parse(model="m", input="how many", text_format=Total)),
    "messages": (
        "anthropic",
        lambda client: client.messages.parse(model="m", max_tokens=9, messages=QUESTION, output_format=Total),
    ),
    "azure": (
        "azure",
        lambda client: client.chat.completions.parse(model="m", messages=QUESTION, response_format=Total),
    ),
    "bedrock": (
        "bedrock",
        lambda client: client.messages.parse(model="m", max_tokens=9, messages=QUESTION, output_format=Total),
    ),
}


@tracer.agent(name="solver")
async def solve(client, parse):
    return await finish(parse(client))


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("name", PARSERS)
async def test_an_answer_that_does_not_parse_is_a_step_with_its_answer(name, is_async, dialects):
    kind, parse = PARSERS[name]
    with tracer.testing.capture() as captured:
        async with opened(make_clients(dialects.url, dialects.url), kind, is_async=is_async) as client:
            with tracer.rollout(task="t"):
                with pytest.raises(ValidationError):
                    await solve(client, parse)
                await finish(ask(client))

    failed, after = captured.trajectory.steps
    assert failed.action.message["content"] in (ANSWER, '{"count": 42}')
    assert (failed.status, failed.agent, failed.findings) == ("ok", "solver", ["answer_not_parsed"])
    assert "Total" in failed.error
    assert after.parent_call == failed.call_id


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("name", PARSERS)
async def test_with_a_gateway_a_call_whose_answer_does_not_parse_keeps_its_caller(name, is_async, dialects, rollout_at):
    kind, parse = PARSERS[name]
    with tracer.testing.capture() as captured:
        async with opened(make_clients(dialects.url, dialects.url), kind, is_async=is_async) as client:
            with tracer.enter_rollout(rollout_at(f"{dialects.url}/r/r-0", captured)):
                with pytest.raises(ValidationError):
                    await solve(client, parse)
                await finish(ask(client))

    failed, after = captured.records
    assert (failed.agent, failed.phase) == ("solver", "start")
    assert failed.call_id == dialects.seen[0][1]["x-agent-layer-call"]
    assert after.parent_call == failed.call_id


@pytest.mark.parametrize("is_routed", [False, True], ids=["text", "gateway"])
@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_a_structured_output_that_does_not_parse_keeps_its_answer_and_node(method, is_routed, dialects, rollout_at):
    model = ChatOpenAI(model="m", base_url=f"{dialects.url}/v1", api_key="own").with_structured_output(
        Total, method=method
    )

    def think(state):
        return {"messages": [str(model.invoke(state["messages"]).total)]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_edge(START, "think")
    graph.add_edge("think", END)
    with tracer.testing.capture() as captured:
        rollout = rollout_at(f"{dialects.url}/r/r-0", captured) if is_routed else None
        entered = tracer.enter_rollout(rollout) if rollout else tracer.rollout(task="t")
        with entered, pytest.raises((ValidationError, AttributeError, OutputParserException)):
            graph.compile().invoke({"messages": QUESTION})

    if is_routed:
        (part, *_) = [record for record in captured.records if getattr(record, "node", None)]
        assert (part.node, part.call_id) == ("think", dialects.seen[0][1]["x-agent-layer-call"])
        assert part.state.framework is not None
    else:
        (step,) = captured.trajectory.steps
        assert (step.action.message["content"], step.node, step.status) == (ANSWER, "think", "ok")


REASONERS = {
    "responses": (
        "openai",
        lambda client, **options: client.responses.create(
            model="m", input="how many", reasoning={"summary": "auto"}, **options
        ),
        "response.output_text.delta",
    ),
    "messages": (
        "anthropic",
        lambda client, **options: client.messages.create(
            model="m",
            max_tokens=2_000,
            messages=QUESTION,
            thinking={"type": "enabled", "budget_tokens": 1_024},
            **options,
        ),
        "content_block_stop",
    ),
}


@pytest.mark.parametrize("reading", ["whole", "streamed", "abandoned"])
@pytest.mark.parametrize("name", REASONERS)
async def test_reasoning_is_part_of_the_answer_and_of_later_prompts(name, reading, dialects):
    kind, reason, middle = REASONERS[name]
    with tracer.testing.capture() as captured:
        async with opened(make_clients(dialects.url, dialects.url), kind, is_async=False) as client:
            with tracer.rollout(task="t"):
                answer = reason(client, stream=reading != "whole")
                if reading != "whole":
                    for event in answer:
                        if reading == "abandoned" and event.type == middle:
                            break
                elif name == "messages":
                    spoken = [*QUESTION, {"role": "assistant", "content": answer.content}, *QUESTION]
                    client.messages.create(model="m", max_tokens=9, messages=spoken)
                else:
                    client.responses.create(model="m", input=[*QUESTION, *answer.output, *QUESTION])

    first, *later = captured.trajectory.steps
    assert first.action.message["reasoning"] == THOUGHT
    for step in later:
        spoken_before = json.loads(captured.trajectory.contents[step.state.messages[1]])
        assert spoken_before == {"role": "assistant", "content": ANSWER, "reasoning": THOUGHT}


async def test_a_stream_is_whole_once_its_answer_has_ended(dialects):
    with tracer.testing.capture() as captured:
        async with opened(make_clients(dialects.url, dialects.url), "openai", is_async=False) as client:
            with tracer.rollout(task="t"):
                for chunk in ask(client, stream=True):
                    if chunk.choices[0].finish_reason:
                        break

    (step,) = captured.trajectory.steps
    assert (step.status, step.action.message["content"]) == ("ok", ANSWER)
