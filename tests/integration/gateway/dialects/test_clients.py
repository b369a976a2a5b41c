"""What the official clients offer works: events, parsed answers, counts, retries, plain addresses."""

import asyncio

import anthropic
import openai
import pytest
from pydantic import BaseModel

from agent_layer.local.scripted.script import token_logprob

from ....waiting import until

HELLO = [{"role": "user", "content": "hi"}]


class Sum(BaseModel):
    """A structured answer."""

    total: int


@pytest.fixture
async def connected(gateway, clients):
    return await clients(await gateway.open())


async def test_parsed_answers(gateway, connected):
    gateway.engine.script = lambda _: '{"total": 42}'
    of_openai, of_anthropic = connected

    chat = await of_openai.chat.completions.parse(model="m", messages=HELLO, response_format=Sum)
    response = await of_openai.responses.parse(model="m", input="hi", text_format=Sum)
    message = await of_anthropic.messages.parse(model="m", max_tokens=9, messages=HELLO, output_format=Sum)

    reported = [chat.choices[0].message.parsed, response.output_parsed, message.parsed_output]
    assert reported == [Sum(total=42)] * 3
    schemas = [call.body["response_format"]["json_schema"]["schema"] for call in gateway.engine.calls]
    assert all(schema["properties"]["total"]["type"] == "integer" for schema in schemas)


async def read_final(manager, name):
    """Return what a streamed answer is in the end."""
    async with manager as stream:
        return await getattr(stream, name)()


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_answers_in_a_group_are_parsed_though_no_grammar_made_them(gateway, clients, is_streamed):
    gateway.engine.script = lambda _: '{"total": 42}'
    opened = await gateway.open(group_id="g")
    of_openai, of_anthropic = await clients(opened)
    chat = {"model": "m", "messages": HELLO, "response_format": Sum}
    response = {"model": "m", "input": "hi", "text_format": Sum}
    message = {"model": "m", "max_tokens": 9, "messages": HELLO, "output_format": Sum}

    if is_streamed:
        chat = await read_final(of_openai.chat.completions.stream(**chat), "get_final_completion")
        response = await read_final(of_openai.responses.stream(**response), "get_final_response")
        message = await read_final(of_anthropic.messages.stream(**message), "get_final_message")
    else:
        chat = await of_openai.chat.completions.parse(**chat)
        response = await of_openai.responses.parse(**response)
        message = await of_anthropic.messages.parse(**message)

    assert [chat.choices[0].message.parsed, response.output_parsed, message.parsed_output] == [Sum(total=42)] * 3
    assert all('"total"' in call.body["messages"][0]["content"] for call in gateway.engine.calls)
    assert not any("response_format" in call.body for call in gateway.engine.calls)
    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert [step.findings for step in steps] == [["neutralised:response_format"]] * 3


async def test_events_come_one_by_one(gateway, connected):
    gateway.engine.script = lambda _: {"reasoning": "hm", "content": "one two"}
    of_openai, of_anthropic = connected

    response = await of_openai.responses.create(model="m", input="hi", stream=True)
    message = await of_anthropic.messages.create(model="m", max_tokens=9, messages=HELLO, stream=True)

    assert [event.type.removeprefix("response.") async for event in response] == [
        *("created", "in_progress"),
        *("output_item.added", "content_part.added", "reasoning_text.delta"),
        *("reasoning_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert [event.type async for event in message] == [
        "message_start",
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]


@pytest.mark.parametrize(
    ("written", "status", "stop"),
    [
        ({"content": "x"}, ("completed", None), ("end_turn", None)),
        ({"content": "x", "finish_reason": "length"}, ("incomplete", "max_output_tokens"), ("max_tokens", None)),
        ({"content": "x", "stop_reason": "END"}, ("completed", None), ("stop_sequence", "END")),
        ({"content": "x", "stop_reason": 7}, ("completed", None), ("end_turn", None)),
        ({"content": "x", "finish_reason": "content_filter"}, ("incomplete", "content_filter"), ("refusal", None)),
    ],
)
async def test_why_an_answer_ended(gateway, connected, written, status, stop):
    gateway.engine.script = lambda _: written
    of_openai, of_anthropic = connected

    response = await of_openai.responses.create(model="m", input="hi")
    message = await of_anthropic.messages.create(model="m", max_tokens=9, messages=HELLO)

    reason = response.incomplete_details and response.incomplete_details.reason
    assert ((response.status, reason), (message.stop_reason, message.stop_sequence)) == (status, stop)


async def test_a_named_tool_is_a_reason_to_stop(gateway, connected):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    gateway.engine.script = lambda _: {"tool_calls": [call]}
    tool, choice = {"name": "f", "input_schema": {"type": "object"}}, {"type": "tool", "name": "f"}

    message = await connected[1].messages.create(
        model="m", max_tokens=9, messages=HELLO, tools=[tool], tool_choice=choice
    )

    assert gateway.engine.calls[0].body["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert (message.stop_reason, message.content[0].input) == ("tool_use", {})


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_counts_are_the_engines(gateway, connected, is_streamed):
    of_openai, of_anthropic = connected

    async def respond():
        if not is_streamed:
            return await of_openai.responses.create(model="m", input="hi")
        async with of_openai.responses.stream(model="m", input="hi") as stream:
            return await stream.get_final_response()

    async def tell():
        fields = {"model": "m", "max_tokens": 9, "messages": HELLO}
        if not is_streamed:
            return await of_anthropic.messages.create(**fields)
        async with of_anthropic.messages.stream(**fields) as stream:
            return await stream.get_final_message()

    response, message = await respond(), await tell()

    first, second = [(len(call.prompt_token_ids), len(call.token_ids[0])) for call in gateway.engine.calls]
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (
        *first,
        sum(first),
    )
    assert (message.usage.input_tokens, message.usage.output_tokens) == second


async def test_tokens_of_a_prompt_are_counted_without_a_call(gateway, connected):
    counted = await connected[1].messages.count_tokens(model="m", system="be brief", messages=HELLO)
    await connected[1].messages.create(model="m", max_tokens=9, system="be brief", messages=HELLO)

    assert counted.input_tokens == len(gateway.engine.calls[0].prompt_token_ids)
    assert len(gateway.engine.calls) == 1


async def test_ids_are_given_to_those_who_ask(gateway, connected):
    wanted = {"return_token_ids": True}
    response = await connected[0].responses.create(model="m", input="hi", extra_body=wanted)
    message = await connected[1].messages.create(model="m", max_tokens=9, messages=HELLO, extra_body=wanted)

    for answer, seen in zip((response, message), gateway.engine.calls, strict=True):
        assert answer.model_extra["prompt_token_ids"] == seen.prompt_token_ids
        assert answer.model_extra["token_ids"] == seen.token_ids[0]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_logprobs_are_shown_in_a_response_that_includes_them(gateway, connected, is_streamed):
    fields = {"model": "m", "input": "hi", "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    if is_streamed:
        async with connected[0].responses.stream(**fields) as stream:
            response = await stream.get_final_response()
    else:
        response = await connected[0].responses.create(**fields)

    (seen,) = gateway.engine.calls
    answer = response.output[0].content[0].logprobs
    assert [one.logprob for one in answer] == [token_logprob(one) for one in seen.token_ids[0]]
    assert seen.body["top_logprobs"] == 2


@pytest.mark.parametrize("dialect", ["completions", "responses", "messages"])
async def test_a_retry_of_the_sdk_is_no_second_step(gateway, clients, dialect):
    opened = await gateway.open()
    of_openai, of_anthropic = await clients(opened)
    of_openai, of_anthropic = (one.with_options(timeout=0.4, max_retries=20) for one in (of_openai, of_anthropic))
    ask = {
        "completions": lambda: of_openai.chat.completions.create(model="m", messages=HELLO),
        "responses": lambda: of_openai.responses.create(model="m", input="hi"),
        "messages": lambda: of_anthropic.messages.create(model="m", max_tokens=9, messages=HELLO),
    }[dialect]
    gateway.engine.token_seconds = 60.0

    asking = asyncio.create_task(ask())
    await until(lambda: gateway.engine.calls)
    gateway.engine.token_seconds = 0.0
    await asking

    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert [step.status for step in steps if step.status != "aborted"] == ["ok"]
    assert len(steps) == len(gateway.engine.calls) > 1


async def test_plain_addresses_with_the_operators_key(gateway):
    opened = await gateway.open()
    named = {"x-agent-layer-rollout": opened["trajectory_id"]}
    options = {"api_key": "operator-key", "default_headers": named}

    async with (
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", **options) as of_openai,
        anthropic.AsyncAnthropic(base_url=gateway.url, **options) as of_anthropic,
    ):
        await of_openai.responses.create(model="m", input="hi")
        await of_anthropic.messages.create(model="m", max_tokens=9, messages=HELLO)

    assert [step.status for step in gateway.log.trajectory(opened["trajectory_id"]).steps] == ["ok", "ok"]


async def test_an_override_of_the_length_wins_whatever_the_agent_calls_it(gateway, clients):
    (client, _) = await clients(await gateway.open(sampling={"max_tokens": 3}))

    await client.chat.completions.create(model="m", messages=HELLO, max_completion_tokens=99)

    request = gateway.engine.calls[0].body
    assert (request["max_tokens"], "max_completion_tokens" in request) == (3, False)
