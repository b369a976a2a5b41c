"""Google's own client, sync and async: chats, tools, streams, counts, models, refusals; and its addresses by hand."""

import asyncio
import json
import logging

import pytest
from aiohttp import web
from pydantic import BaseModel

from agent_layer.local.scripted.script import echo, token_logprob
from agent_layer.schema.messages import resolve

HELLO = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
BASES = ["", "/v1"]
"""A client is given the rollout's address with what OpenAI's clients want behind it, or without."""


class Sum(BaseModel):
    """A structured answer."""

    total: int


@pytest.fixture
async def opened(gateway):
    return await gateway.open()


def add(a: int, b: int) -> int:
    """Return a sum.

    Args:
        a: first.
        b: second.
    """
    return a + b


def call_add(prompt):
    """Think, then call a tool twice, in a layout of one's own; then say what it returned."""
    if prompt.messages[-1]["role"] != "tool":
        calls = [("c1", ' {"b":2,\n "a": 40}'), ("c2", '{"a": 1, "b": 2}')]
        functions = [(name, {"name": "add", "arguments": text}) for name, text in calls]
        called = [{"id": name, "type": "function", "function": one} for name, one in functions]
        return {"reasoning": "let me add", "content": "adding", "tool_calls": called}
    return {"reasoning": "done", "content": f"{prompt.messages[-2]['content']} {prompt.text}"}


def read_history(gateway, opened):
    """Return what the last engine read, after it was compared with what is recorded, step by step."""
    trajectory = gateway.log.trajectory(opened["trajectory_id"])
    assert [(step.status, step.capture_level) for step in trajectory.steps] == [("ok", "tokens")] * len(
        gateway.engine.calls
    )
    for step, seen in zip(trajectory.steps, gateway.engine.calls, strict=True):
        assert list(step.prompt_token_ids) == seen.prompt_token_ids
        assert set(step.findings) <= {"not_applied:functionDeclarations.responseJsonSchema"}  # of Python's functions
    for before, step in zip(trajectory.steps, trajectory.steps[1:], strict=False):
        assert step.parent_call == before.call_id == step.prompt.parent_call
    return [resolve(trajectory.contents, one) for one in trajectory.steps[-1].state.messages]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_chat_that_calls_functions_by_itself_is_one_line_of_exact_steps(
    gateway, opened, google, is_streamed, base
):
    gateway.engine.script = call_add
    chat = google(opened, base).aio.chats.create(
        model="gemini-pro", config={"tools": [add], "system_instruction": "be brief"}
    )

    async def ask(text):
        if not is_streamed:
            return (await chat.send_message(text)).text
        return "".join([piece.text or "" async for piece in await chat.send_message_stream(text)])

    answers = [await ask(text) for text in ("first", "second")]

    assert [answer.removeprefix("adding") for answer in answers] == ['{"result": 42} {"result": 3}'] * 2
    spoken = read_history(gateway, opened)
    assert [message["role"] for message in spoken] == [
        *("system", "user", "assistant", "tool", "tool", "assistant"),
        *("user", "assistant", "tool", "tool"),
    ]
    assert [message.get("reasoning") for message in spoken if message["role"] == "assistant"] == [
        *("let me add", "done", "let me add")
    ]
    called = spoken[2]["tool_calls"]
    assert [one["function"]["arguments"] for one in called] == [' {"b":2,\n "a": 40}', '{"a": 1, "b": 2}']
    assert [one["tool_call_id"] for one in spoken[3:5]] == [one["id"] for one in called] == ["c1", "c2"]
    (tool,) = gateway.engine.calls[0].body["tools"]
    assert tool["function"]["parameters"]["properties"]["a"]["type"] == "integer"


async def test_the_sync_client_chats_streams_counts_and_lists(gateway, opened, google):
    gateway.engine.script = lambda _: {"reasoning": "hm", "content": "one two", "finish_reason": "length"}
    client = google(opened)

    def use():
        chat = client.chats.create(model="m", config={"thinking_config": {"include_thoughts": True}})
        answers = [chat.send_message("a"), *chat.send_message_stream("b")]
        counted = client.models.count_tokens(model="m", contents="a")
        models = [model.name for model in client.models.list()]
        return answers, counted.total_tokens, models, client.models.get(model="other").name

    answers, counted, models, model = await asyncio.to_thread(use)

    first, *pieces = answers
    assert [part.thought for part in first.candidates[0].content.parts] == [True, None]
    assert (first.text, "".join(one.text or "" for one in pieces)) == ("one two", "one two")
    assert [one.candidates[0].finish_reason for one in (first, pieces[-1])] == ["MAX_TOKENS"] * 2
    assert (counted, models, model) == (
        len(gateway.engine.calls[0].prompt_token_ids),
        ["models/scripted"],
        "models/other",
    )
    seen = gateway.engine.calls[0]
    usage = first.usage_metadata
    assert (usage.prompt_token_count, usage.total_token_count) == (
        len(seen.prompt_token_ids),
        len(seen.prompt_token_ids) + len(seen.token_ids[0]),
    )
    assert len(read_history(gateway, opened)) == 3


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_log_probabilities_and_parsed_answers_and_ids(gateway, opened, google, is_streamed):
    gateway.engine.script = lambda _: '{"total": 42}'
    models = google(opened).aio.models
    config = {
        "response_mime_type": "application/json",
        "response_schema": Sum,
        "response_logprobs": True,
        "logprobs": 1,
        "http_options": {"extra_body": {"return_token_ids": True}},
    }
    if is_streamed:
        *_, answer = [one async for one in await models.generate_content_stream(model="m", contents="x", config=config)]
    else:
        answer = await models.generate_content(model="m", contents="x", config=config)
        assert answer.parsed == Sum(total=42)

    (seen,) = gateway.engine.calls
    chosen = answer.candidates[0].logprobs_result.chosen_candidates
    assert [one.log_probability for one in chosen] == pytest.approx([token_logprob(one) for one in seen.token_ids[0]])
    assert seen.body["response_format"]["json_schema"]["schema"]["properties"]["total"]["type"] == "integer"


@pytest.fixture
def errors():
    """Errors of Google's client."""
    from google.genai import errors  # noqa: PLC0415  # it takes seconds, which collecting must not

    return errors


async def test_refusals_are_googles_errors(gateway, google, errors):
    opened = await gateway.open(limits={"turns": 1})
    models = google(opened).aio.models
    wrong = google({**opened, "api_key": "rk-wrong"}).aio.models
    await models.generate_content(model="m", contents="hi")

    async def read(asking):
        with pytest.raises(errors.ClientError) as raised:
            await asking
        return raised.value.code, raised.value.status, raised.value.message

    refused = [
        await read(wrong.generate_content(model="m", contents="hi")),
        await read(models.generate_content(model="m", contents="hi")),
        await read(models.generate_content(model="m", contents="hi", config={"cached_content": "c"})),
        await read(models.embed_content(model="m", contents="hi")),
    ]

    assert [one[:2] for one in refused] == [
        (401, "UNAUTHENTICATED"),
        (400, "FAILED_PRECONDITION"),  # with 429, its clients would try again and again
        (400, "INVALID_ARGUMENT"),
        (404, "NOT_FOUND"),
    ]
    assert "limit of 1 model calls is used up" in refused[1][2]
    assert "cachedContent" in refused[2][2]
    assert len(gateway.engine.calls) == 1


async def test_an_answer_that_breaks_off_is_an_error_of_the_client(gateway, opened, google, errors):
    gateway.engine.script = lambda _: {"content": "so far", "error": {"message": "no memory", "type": "InternalError"}}

    with pytest.raises(errors.ServerError, match="no memory"):
        async for _ in await google(opened).aio.models.generate_content_stream(model="m", contents="hi"):
            pass

    step = gateway.step(opened)
    assert (step.status, step.action.message["content"]) == ("error", "so far")


async def test_a_failure_of_the_engine_is_tried_again(gateway, opened, google):
    def fail_once(prompt):
        if len(gateway.engine.calls) == 1:
            raise web.HTTPInternalServerError
        return echo(prompt)

    gateway.engine.script = fail_once
    client = google(opened, retry_options={"attempts": 3, "initial_delay": 0.01})

    answer = await client.aio.models.generate_content(model="m", contents="hi")

    assert answer.text == "you said: hi"
    steps = gateway.log.trajectory(opened["trajectory_id"]).steps
    assert [step.status for step in steps] == ["error", "ok"]


async def ask(gateway, address, headers=None, **fields):
    """Ask by hand; return (status, content type, text)."""
    async with gateway.session.post(address, json=HELLO | fields, headers=headers) as reply:
        return reply.status, reply.content_type, await reply.text()


async def test_a_stream_comes_as_events_or_as_a_list_and_is_repeated_in_its_form(gateway, opened):
    url = f"{gateway.url}/r/{opened['trajectory_id']}/v1beta/models/m:streamGenerateContent"
    seen = {}
    for alt in ("sse", "json"):
        headers = {"x-goog-api-key": opened["api_key"], "x-agent-layer-call": f"the-{alt}"}
        first, again = [await ask(gateway, f"{url}?alt={alt}", headers) for _ in range(2)]
        other = await ask(gateway, f"{url}?alt={'sse' if alt == 'json' else 'json'}", headers)
        assert first == again
        assert (other[0], "the same form" in other[2]) == (400, True)
        seen[alt] = first
    assert len(gateway.engine.calls) == 2

    events = [json.loads(line[6:]) for line in seen["sse"][2].splitlines() if line]
    kinds = [kind for _, kind, _ in seen.values()]
    assert kinds == ["text/event-stream", "application/json"]
    texts = [
        "".join(part["text"] for piece in pieces for part in piece["candidates"][0]["content"]["parts"])
        for pieces in (events, json.loads(seen["json"][2]))
    ]
    assert texts == ["you said: hi"] * 2


ADDRESSES = [
    f"{base}/{version}/models/{model}:generateContent"
    for base in BASES
    for version in ("v1beta", "v1", "v1alpha")
    for model in ("m", "Qwen/Qwen3-8B", "a:b", "gemini-3%20pro")
]


@pytest.mark.parametrize("path", [*ADDRESSES, "/v1beta1/publishers/google/models/m:generateContent"])
async def test_addresses_as_clients_make_them(gateway, opened, path):
    url = f"{gateway.url}/r/{opened['trajectory_id']}{path}"

    assert (await ask(gateway, url, {"x-goog-api-key": opened["api_key"]}))[0] == 200
    assert (await ask(gateway, f"{gateway.url}{path}", {"x-goog-api-key": opened["api_key"]}))[0] == 401
    named = {"x-goog-api-key": "operator-key", "x-agent-layer-rollout": opened["trajectory_id"]}
    assert (await ask(gateway, f"{gateway.url}{path}", named))[0] == 200


async def test_a_key_in_the_address_opens_and_is_never_kept(gateway, opened, caplog):
    caplog.set_level(logging.DEBUG)
    url, key = f"{gateway.url}/r/{opened['trajectory_id']}/v1beta/models", opened["api_key"]

    assert (await ask(gateway, f"{url}/m:generateContent?key={key}"))[0] == 200
    assert (await ask(gateway, f"{url}/m:generateContent?key={key}", contents=3))[0] == 400
    assert (await ask(gateway, f"{url}/m:sing?key={key}"))[0] == 404
    assert (await ask(gateway, f"{url}/m:generateContent?key=rk-secret-wrong"))[0] == 401
    assert (await ask(gateway, f"{gateway.url}/r/{opened['trajectory_id']}/v1/responses?key={key}", input="x"))[
        0
    ] == 401
    async with gateway.session.get(f"{url}?key={key}") as reply:
        assert (reply.status, [one["name"] for one in (await reply.json())["models"]]) == (200, ["models/scripted"])
    host, port = gateway.url.removeprefix("http://").split(":")
    for line in (f"GET /v1beta/m\u00e4?key={key} HTTP/1.1", f"GET /v1beta/models?key={key} HTTP/9 x"):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"{line}\r\nHost: h\r\n\r\n".encode())
        answered = await reader.read()
        writer.close()
        assert b" 400 " in answered
        assert key.encode() not in answered

    gateways = [record for record in caplog.records if not record.name.startswith("asyncio")]
    written = repr([(record.getMessage(), record.exc_text) for record in gateways])
    kept = [
        key in repr(gateway.log.records),
        "rk-secret-wrong" in written,
        key in written,
        key in await gateway.metrics(),
    ]
    assert kept == [False] * 4
