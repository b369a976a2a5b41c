"""Whatever an agent sends is answered with a sentence or an answer, and leaves records that can be read again."""

import asyncio
import json

import pytest

from agent_layer.gateway.dialects.refusals import refusal
from agent_layer.schema.messages import resolve

TALK = b'"messages": [{"role": "user", "content": "x"}]'
DEEP = b"[" * 20_000 + b"]" * 20_000
NO_CHATS = {
    "empty": b"",
    "no messages": b"{}",
    "text for message": b'{"messages": ["x"]}',
    "null for message": b'{"messages": [null]}',
    "number for role": b'{"messages": [{"role": 5}]}',
    "no UTF-8": b'{"messages": [{"role": "user", "content": "\xff"}]}',
    "no UTF-8 in a name": b'{"\xff": 1, %b}' % TALK,
    "deep": b'{"x": %b, %b}' % (DEEP, TALK),
    "deep message": b'{"messages": [{"role": "user", "content": %b}]}' % DEEP,
    "infinite": b'{"temperature": 1e400, %b}' % TALK,
    "no number": b'{"temperature": NaN, %b}' % TALK,
}
LONG = b"9" * 30
LONG_INTEGERS = (
    ("chat/completions", "tool_choice"),
    ("chat/completions", "reasoning"),
    ("messages", "tool_choice"),
    ("messages", "thinking"),
    ("messages", "output_config"),
    ("messages", "x"),
    ("responses", "tool_choice"),
    ("responses", "reasoning"),
    ("responses", "text"),
    ("responses", "truncation"),
    ("responses", "x"),
    ("models/m:generateContent", "toolConfig"),
    ("models/m:generateContent", "generationConfig"),
    ("models/m:generateContent", "x"),
)
OTHERS = {
    ("messages", "infinite"): b'{"x": 1e400, "max_tokens": 5, %b}' % TALK,
    ("messages", "deep"): b'{"x": %b, %b}' % (DEEP, TALK),
    ("chat/completions", "infinite in an answer"): b'{"messages": [{"role": "assistant", "x": 1e400}]}',
    ("chat/completions", "infinite in a tool"): b'{"tools": [{"x": 1e400}], %b}' % TALK,
    ("chat/completions", "infinite metadata"): b'{"metadata": {"x": -1e400}, %b}' % TALK,
    **{
        (
            path,
            f"long integer in {name}",
        ): b'{"max_tokens": 5, "input": "x", "contents": [], %b: {"type": "x", "n": %b}, %b}'
        % (json.dumps(name).encode(), LONG, TALK)
        for path, name in LONG_INTEGERS
    },
    ("messages", "no UTF-8"): b'{"max_tokens": 5, "messages": [{"role": "user", "content": "\xff"}]}',
    ("messages", "no result"): b'{"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}',
    ("responses", "infinite"): b'{"input": "x", "x": 1e400}',
    ("responses", "deep"): b'{"input": "x", "x": %b}' % DEEP,
    ("responses", "no UTF-8"): b'{"input": "\xff"}',
    ("models/m:generateContent", "infinite"): b'{"contents": [], "x": 1e400}',
    ("models/m:generateContent", "deep"): b'{"contents": [], "x": %b}' % DEEP,
    ("models/m:generateContent", "deep arguments"): (
        b'{"contents": [{"role": "model", "parts": [{"functionCall": {"name": "f", "args": %b}}]}]}' % DEEP
    ),
    ("models/m:generateContent", "no UTF-8"): b'{"contents": [{"parts": [{"text": "\xff"}]}]}',
    ("models/m:streamGenerateContent", "a text for contents"): b'{"contents": ["x"]}',
    ("models/m:countTokens", "no UTF-8"): b'{"contents": [{"parts": [{"text": "\xff"}]}]}',
    ("models/m:countTokens", "no request"): b'{"generateContentRequest": 3}',
    ("messages/count_tokens", "no UTF-8"): b'{"messages": [{"role": "user", "content": "\xff"}]}',
}
BODIES = {("chat/completions", name): body for name, body in NO_CHATS.items()} | OTHERS


async def send(gateway, opened, path, body, headers=None):
    """Return (status, answer)."""
    headers = {"Authorization": f"Bearer {opened['api_key']}", **(headers or {})}
    async with gateway.session.post(f"{opened['base_url']}/{path}", data=body, headers=headers) as reply:
        return reply.status, await reply.json()


@pytest.mark.parametrize(("path", "name"), BODIES, ids="-".join)
async def test_what_is_no_question_is_refused_and_not_recorded(gateway, path, name):
    opened = await gateway.open()

    status, answer = await send(gateway, opened, path, BODIES[path, name])

    assert (status, len(gateway.log.parts())) == (400, 0)
    assert "expected" in answer["error"]["message"]
    assert "Error(" not in answer["error"]["message"]


async def test_a_body_that_is_not_compressed_as_it_says_is_refused(gateway):
    opened = await gateway.open()

    status, _ = await send(gateway, opened, "chat/completions", b"{%b}" % TALK, {"content-encoding": "gzip"})

    assert status == 400


@pytest.mark.parametrize("path", ["/rollouts", "/engines"])
@pytest.mark.parametrize("body", [b'{"task_id": "\xff"}', b'{"task_id": %b}' % DEEP], ids=["no UTF-8", "deep"])
async def test_operators_are_told_in_a_sentence_too(gateway, path, body):
    async with gateway.session.post(gateway.url + path, data=body, headers={"x-api-key": "operator-key"}) as reply:
        assert (reply.status, "expected" in await reply.text()) == (400, True)


@pytest.mark.parametrize(
    "answer",
    [
        {"content": {"a": 1}, "tool_calls": "q"},
        {"content": [1, None], "tool_calls": [1, None, {"function": 3}]},
        {"tool_calls": [{"function": {"name": "f", "arguments": "[" * 20_000}}]},
    ],
)
async def test_a_history_that_no_model_said_is_a_history(gateway, answer):
    gateway.engine.script = lambda _: "well"
    opened = await gateway.open()
    await gateway.chat(opened, "x")
    fields = {"messages": [{"role": "user", "content": "y"}, {"role": "assistant", **answer}]}

    status, _ = await gateway.post(f"/r/{opened['trajectory_id']}/v1/chat/completions", fields)

    assert status == 200
    state, contents = gateway.step(opened).state, gateway.log.trajectory(opened["trajectory_id"]).contents
    assert [resolve(contents, one) for one in state.messages] == fields["messages"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "dialect",
    ["chat/completions", "messages", "responses", "models/m:generateContent", "models/m:streamGenerateContent"],
)
async def test_a_model_that_repeats_a_bracket_for_ever_is_recorded(gateway, dialect, stream):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "[" * 20_000}}
    gateway.engine.script = lambda _: {"tool_calls": [call]}
    opened = await gateway.open()
    fields = {"messages": [{"role": "user", "content": "x"}], "input": "x", "stream": stream, "max_tokens": 9}
    fields |= {"contents": [{"role": "user", "parts": [{"text": "x"}]}]}

    headers = {"Authorization": f"Bearer {opened['api_key']}"}
    async with gateway.session.post(f"{opened['base_url']}/{dialect}", json=fields, headers=headers) as reply:
        assert (reply.status, await reply.read() != b"") == (200, True)

    assert gateway.step(opened).status == "ok"


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        (b"x-agent-layer-agent", b"\xff", b"400"),
        (b"x-agent-layer-agent", "\u00e4".encode(), b"200"),
        (b"x-stainless-retry-count", b"9" * 5000, b"200"),
        (b"idempotency-key", b"\xff", b"200"),
        (b"traceparent", b"\xff", b"200"),
    ],
)
async def test_a_header_of_any_bytes_is_borne(gateway, name, value, status):
    opened = await gateway.open()
    host, port = gateway.url.removeprefix("http://").split(":")
    body, key = b"{%b}" % TALK, opened["api_key"].encode()

    reader, writer = await asyncio.open_connection(host, int(port))
    path = f"/r/{opened['trajectory_id']}/v1/chat/completions".encode()
    writer.write(b"POST %b HTTP/1.1\r\nHost: here\r\nx-api-key: %b\r\nConnection: close\r\n" % (path, key))
    writer.write(b"%b: %b\r\nContent-Length: %d\r\n\r\n%b" % (name, value, len(body), body))
    content_read = await reader.read()
    writer.close()
    await writer.wait_closed()

    assert content_read.split()[1] == status
    assert "error" in json.loads(content_read.partition(b"\r\n\r\n")[2]) or status == b"200"


def test_a_refusal_may_quote_what_is_no_text():
    answer = refusal("/v1/chat/completions", 404, "gone", "rollout \udcff: unknown")

    assert json.loads(answer.body)["error"]["message"] == "rollout ?: unknown"


@pytest.mark.parametrize("about", [{"attempt": -1}, {"sampling": {"stream": True}}, {"sampling": {"messages": []}}])
async def test_an_opening_that_would_break_the_record_is_refused(gateway, about):
    status, answer = await gateway.post("/rollouts", {"task_id": "t", **about})

    assert (status, "found" in answer["error"]["message"]) == (400, True)


@pytest.mark.parametrize("status", ["running", "queued", "sealing"])
async def test_a_rollout_does_not_end_in_a_state_that_goes_on(gateway, status):
    opened = await gateway.open()

    assert (await gateway.post(f"/rollouts/{opened['rollout_id']}/end", {"status": status}))[0] == 400


async def test_a_call_that_is_cut_off_by_the_end_of_its_rollout_is_told_so(gateway, until):
    gateway.engine.token_seconds = 30
    opened = await gateway.open()
    request = asyncio.create_task(gateway.chat(opened, "x"))
    await until(lambda: gateway.engine.num_running)

    await gateway.post(f"/rollouts/{opened['rollout_id']}/close", {})
    status, answer = await request

    assert (status, answer["error"]["code"]) == (410, "rollout_closed")


async def test_another_question_under_the_same_call_id_is_another_call(gateway):
    opened = await gateway.open()
    named = {"x-agent-layer-call": "call", "idempotency-key": "key"}

    answers = [await gateway.chat(opened, text, headers=named) for text in ("one", "two", "one", "two")]

    assert answers[:2] == answers[2:]
    assert [step.call_id for step in gateway.log.trajectory(opened["trajectory_id"]).steps] == ["call", "call~1"]
