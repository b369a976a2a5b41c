"""Whatever an engine sends, its client gets the truth in its dialect, and the record agrees."""

import asyncio
import contextlib
import json

import pytest

from agent_layer.engines.registry import Engine
from agent_layer.errors import CaptureError
from trainer_adapter.data import samples_of

HEAD = b"HTTP/1.1 %d X\r\nContent-Type: %b\r\nConnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def event(*ids, prompt=None, finish=None, num_logprobs=None, **delta):
    known = ids[:num_logprobs]
    logprobs = {"content": [{"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []} for _ in known]}
    choice = {"index": 0, "delta": delta, "token_ids": list(ids), "logprobs": logprobs, "finish_reason": finish}
    return b"data: %b\n\n" % json.dumps({"choices": [choice], "prompt_token_ids": prompt}).encode()


BEGIN, LAST = event(5, prompt=[1, 2], content="hel"), event(6, content="lo", finish="stop")
STREAMS = {
    "whole": (BEGIN + LAST + DONE, "ok"),
    "no closing event": (BEGIN + LAST, "ok"),
    "no last newline": ((BEGIN + LAST).rstrip(), "ok"),
    "no newline after the closing event": ((BEGIN + LAST + DONE).rstrip(), "ok"),
    "lines of the other kind": ((BEGIN + LAST + DONE).replace(b"\n", b"\r\n"), "ok"),
    "more after the closing event": (BEGIN + LAST + DONE + b": bye\n\n", "ok"),
    "no end": (BEGIN, "error"),
    "nothing": (b"", "error"),
    "no JSON": (BEGIN + b"data: {x\n\n" + LAST + DONE, "error"),
    "no UTF-8": (BEGIN.replace(b"hel", b"\xff") + LAST + DONE, "error"),
    "an error": (BEGIN + b'data: {"error": {"message": "no memory"}}\n\n' + DONE, "error"),
    "a text as error": (BEGIN + b'data: {"error": "no memory"}\n\n', "error"),
}
ENDS = {
    "chat/completions": "[DONE]",
    "messages": "message_stop",
    "responses": "response.completed",
    "models/m:generateContent": '"finishReason":"STOP"',
}
REPLIES = {
    "a redirect": (307, b"text/plain", b"", 502),
    "nothing": (204, b"text/plain", b"", 502),
    "an error of another shape": (422, b"application/json", b'{"detail": [{"msg": "bad"}]}', 422),
    "a text as error": (429, b"application/json", b'{"error": "slow down"}', 429),
    "a page": (503, b"text/html", b"<h1>away</h1>", 503),
    "no UTF-8": (200, b"application/json", b'{"choices": [{"message": {"content": "\xff"}}]}', 502),
    "no answer": (200, b"application/json", b"null", 502),
    "deep": (200, b"application/json", b"[" * 20_000, 502),
}


@contextlib.asynccontextmanager
async def broken(gateway, message):
    """An engine that sends this and disconnects, in place of the gateway's own."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(message)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            writer.write_eof()
            await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    fields = {
        "run": gateway.registry.read(gateway.engine.url).run,
        "version": 0,
        "location": "x",
        "model": "m",
        "epoch": 0,
    }
    gateway.registry.register(Engine(url=url, logprobs_mode="raw", state="serving", **fields))
    gateway.registry.forget(gateway.engine.url)
    async with gateway.session.get(f"{gateway.url}/engines", headers={"x-api-key": "operator-key"}) as reply:
        assert [engine["url"] for engine in await reply.json()] == [url]
    try:
        yield
    finally:
        server.close()


async def ask(gateway, opened, dialect, *, stream):
    """Return (status, text)."""
    fields = {"model": "m", "max_tokens": 9, "stream": stream, "messages": [{"role": "user", "content": "x"}]}
    fields = {"model": "m", "input": "x", "stream": stream} if dialect == "responses" else fields
    if dialect.startswith("models/"):
        fields = {"contents": [{"role": "user", "parts": [{"text": "x"}]}]}
        dialect = dialect.replace(":generate", ":streamGenerate") + "?alt=sse" if stream else dialect
    headers = {"Authorization": f"Bearer {opened['api_key']}"}
    async with gateway.session.post(f"{opened['base_url']}/{dialect}", json=fields, headers=headers) as reply:
        return reply.status, (await reply.read()).decode("utf-8", "replace")


@pytest.mark.parametrize("dialect", ENDS)
@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_ends_for_the_client_as_it_is_recorded(gateway, dialect, name):
    reply, status = STREAMS[name]
    opened = await gateway.open()

    async with broken(gateway, HEAD % (200, b"text/event-stream") + reply):
        _, answer = await ask(gateway, opened, dialect, stream=True)

    step = gateway.step(opened)
    assert step.status == status
    if status == "ok":
        assert (ENDS[dialect] in answer, "error" in answer.replace('"error":null', "")) == (True, False)
        assert (list(step.action.response_token_ids), step.action.message["content"]) == ([5, 6], "hello")
    elif dialect != "chat/completions":
        assert (ENDS[dialect] in answer, '"error"' in answer) == (False, True)


@pytest.mark.parametrize("dialect", ENDS)
@pytest.mark.parametrize("stream", [False, True])
async def test_half_a_surrogate_pair_is_a_replacement_character(gateway, dialect, stream):
    gateway.engine.script = lambda _: "one ? three"
    gateway.engine.rewrite = lambda _, sent: json.loads(json.dumps(sent).replace("?", "\\ud83d"))
    opened = await gateway.open()

    status, answer = await ask(gateway, opened, dialect, stream=stream)

    step = gateway.step(opened)
    assert (status, step.status, step.action.message["content"]) == (200, "ok", "one \ufffd three")
    assert list(step.action.response_token_ids) == gateway.engine.calls[0].token_ids[0]
    assert "\ufffd" in answer.replace("\\ufffd", "\ufffd")
    assert "\\ud83d" not in answer


def changed(event, change):
    """Change the JSON of an event."""
    answer = json.loads(event[6:])
    change(answer, answer["choices"][0])
    return b"data: %b\n\n" % json.dumps(answer).encode()


def make_reply(change, finish="stop", *, stream):
    """Whole or streamed, with its last event changed: two tokens, and the text 'hello'."""
    if stream:
        last = changed(event(6, content="lo", finish=finish), change)
        return HEAD % (200, b"text/event-stream") + BEGIN + last + DONE
    whole = changed(event(5, 6, prompt=[1, 2], finish=finish), lambda _, one: one.update(message={"content": "hello"}))
    return HEAD % (200, b"application/json") + changed(whole, change)[6:]


IDS, NO_IDS, TEXT = [5, 6], None, "text"
UNREADABLE = {
    "usage.prompt_tokens is null": (
        lambda reported, _: reported.update(usage={"prompt_tokens": None}),
        IDS,
        "tokens",
        "usage",
    ),
    "usage is a text": (lambda reported, _: reported.update(usage="much"), IDS, "tokens", "usage"),
    "usage counts in text": (lambda reported, _: reported.update(usage={"prompt_tokens": "2"}), IDS, "tokens", "usage"),
    "prompt ids in text": (
        lambda reported, _: reported.update(prompt_token_ids=["1"]),
        IDS,
        "tokens",
        "prompt_token_ids",
    ),
    "a log-probability is null": (
        lambda _, choice: choice.update(logprobs={"content": [{"token": "a", "logprob": None}]}),
        *(IDS, TEXT, "logprobs"),
    ),
    "log-probabilities in a list": (lambda _, choice: choice.update(logprobs=[-1.0]), IDS, TEXT, "logprobs"),
    "an id is too large": (lambda _, choice: choice.update(token_ids=[1 << 40]), NO_IDS, "logprobs", "token_ids"),
    "an id is negative": (lambda _, choice: choice.update(token_ids=[-6]), NO_IDS, "logprobs", "token_ids"),
    "an id is null": (lambda _, choice: choice.update(token_ids=[None]), NO_IDS, "logprobs", "token_ids"),
    "ids in text": (lambda _, choice: choice.update(token_ids="6"), NO_IDS, "logprobs", "token_ids"),
    "a stop reason of its own kind": (lambda _, choice: choice.update(stop_reason=[1]), IDS, "tokens", "stop_reason"),
}


@pytest.mark.parametrize("dialect", ENDS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", UNREADABLE)
async def test_a_member_that_cannot_be_read_leaves_the_rest_recorded(gateway, dialect, name, stream):
    change, ids, level, member = UNREADABLE[name]
    opened = await gateway.open(group_id="g")

    async with broken(gateway, make_reply(change, stream=stream)):
        status, answer = await ask(gateway, opened, dialect, stream=stream)

    step = gateway.step(opened)
    assert (status, step.status, step.action.message["content"]) == (200, "ok", "hello")
    assert "hel" in answer
    assert f"unread:{member}" in step.findings
    found = step.action.response_token_ids
    assert (None if found is None else len(found)) == (None if ids is None else 2)
    is_prompt_lost = member == "prompt_token_ids" and not stream  # a stream has them in its first event
    assert step.capture_level == ("logprobs" if is_prompt_lost else level)


@pytest.mark.parametrize("dialect", ENDS)
@pytest.mark.parametrize("choices", [None, [], 5])
async def test_a_last_event_without_choices_takes_nothing_away(gateway, dialect, choices):
    last = b"data: %b\n\n" % json.dumps({"choices": choices, "usage": None}).encode()
    opened = await gateway.open(group_id="g")

    async with broken(gateway, HEAD % (200, b"text/event-stream") + BEGIN + LAST + last + DONE):
        _, answer = await ask(gateway, opened, dialect, stream=True)

    step = gateway.step(opened)
    assert (step.status, step.capture_level, list(step.action.response_token_ids)) == ("ok", "tokens", [5, 6])
    assert step.findings == ([] if choices == [] else ["unread:choices"])
    assert ENDS[dialect] in answer


USED = {"prompt_tokens": 2, "completion_tokens": 2}
DISAGREEMENTS = {
    "fewer tokens than counted": (lambda reported, _: reported.update(usage={**USED, "completion_tokens": 3}), "usage"),
    "more tokens than counted": (lambda reported, _: reported.update(usage={**USED, "completion_tokens": 1}), "usage"),
    "another prompt than counted": (lambda reported, _: reported.update(usage={**USED, "prompt_tokens": 3}), "usage"),
    "more log-probabilities than tokens": (
        lambda _, choice: choice["logprobs"]["content"].append({"token": "b", "logprob": -2.0}),
        "logprobs",
    ),
    "another choice than was asked": (lambda _, choice: choice.update(index=1), "choices"),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", DISAGREEMENTS)
async def test_an_answer_that_contradicts_itself_is_not_trained(gateway, name, stream):
    change, member = DISAGREEMENTS[name]
    opened = await gateway.open(group_id="g")

    async with broken(gateway, make_reply(change, stream=stream)):
        await ask(gateway, opened, "chat/completions", stream=stream)
    trajectory = gateway.log.trajectory(opened["trajectory_id"])

    assert f"disagrees:{member}" in trajectory.steps[0].findings
    assert trajectory.steps[0].capture_level == "text"
    if trajectory.steps[0].status == "ok":
        with pytest.raises(CaptureError, match=f"disagrees:{member}"):
            samples_of(trajectory)


REASONS = {
    "stop": ("ok", "end_turn", "completed", "STOP"),
    "tool_calls": ("ok", "tool_use", "completed", "STOP"),
    "length": ("ok", "max_tokens", "incomplete", "MAX_TOKENS"),
    "content_filter": ("ok", "refusal", "incomplete", "SAFETY"),
    "abort": ("aborted", "max_tokens", "incomplete", "MAX_TOKENS"),
    "repetition": ("aborted", "max_tokens", "incomplete", "MAX_TOKENS"),
    "a reason of tomorrow": ("aborted", "max_tokens", "incomplete", "MAX_TOKENS"),
    "": ("aborted", "max_tokens", "incomplete", "MAX_TOKENS"),
    None: ("aborted", "max_tokens", "incomplete", "MAX_TOKENS"),
    "error": ("error", None, "failed", None),
}


@pytest.mark.parametrize("dialect", ENDS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("reason", REASONS)
async def test_an_answer_ends_as_one_table_says(gateway, dialect, reason, stream):
    status, stop_reason, response_status, google_reason = REASONS[reason]
    opened = await gateway.open(group_id="g")

    async with broken(gateway, make_reply(lambda *_: None, reason, stream=stream)):
        code, answer = await ask(gateway, opened, dialect, stream=stream)

    step = gateway.step(opened)
    assert (step.status, list(step.action.response_token_ids)) == (status, [5, 6])
    assert (step.findings == []) == (status == "ok")
    assert all(finding.startswith("unfinished:") for finding in step.findings)
    match dialect, status:
        case "messages", "error":
            assert (code, '"type":"error"' in answer) == (200 if stream else 502, True)
        case "messages", _:
            assert f'"stop_reason":"{stop_reason}"' in answer
        case "responses", _:
            assert f'"status":"{response_status}"' in answer
        case "models/m:generateContent", "error":
            assert (code, '"status":"UNAVAILABLE"' in answer) == (200 if stream else 502, True)
        case "models/m:generateContent", _:
            assert f'"finishReason":"{google_reason}"' in answer
    assert not (status != "ok" and any(end in answer for end in ('"end_turn"', "response.completed", '"STOP"')))


async def test_fewer_choices_than_asked_are_not_trained(gateway):
    opened = await gateway.open(group_id="g")

    async with broken(gateway, make_reply(lambda *_: None, stream=False)):
        await gateway.chat(opened, "x", n=2)

    step = gateway.step(opened)
    assert (step.status, step.capture_level) == ("aborted", "text")
    assert step.findings == ["disagrees:choices", "unfinished:no reason"]


async def test_an_answer_with_fewer_log_probabilities_than_tokens_is_a_finding(gateway):
    opened = await gateway.open(group_id="g")
    message = BEGIN + event(6, num_logprobs=0, content="lo", finish="stop") + DONE

    async with broken(gateway, HEAD % (200, b"text/event-stream") + message):
        await ask(gateway, opened, "chat/completions", stream=True)

    step = gateway.step(opened)
    assert (step.status, step.capture_level, step.findings) == ("ok", "logprobs", ["no_logprobs"])
    with pytest.raises(CaptureError, match="a log-probability for each sampled token"):
        samples_of(gateway.log.trajectory(opened["trajectory_id"]))


async def test_a_client_that_falls_behind_and_leaves_is_no_error(gateway, until, caplog):
    opened = await gateway.open()
    host, port = gateway.url.removeprefix("http://").split(":")
    request = json.dumps({"stream": True, "messages": [{"role": "user", "content": "x"}]}).encode()
    head = (
        f"POST /r/{opened['trajectory_id']}/v1/chat/completions HTTP/1.1\r\nHost: h\r\nx-api-key: {opened['api_key']}"
    )

    async with broken(gateway, HEAD % (200, b"text/event-stream") + BEGIN * 100_000):
        reader, writer = await asyncio.open_connection(host, int(port), limit=1000)
        writer.write(b"%b\r\nContent-Length: %d\r\n\r\n%b" % (head.encode(), len(request), request))
        await reader.readuntil(b"hel")
        writer.transport.abort()
        await until(lambda: gateway.log.parts("end"))

    assert (gateway.step(opened).status, caplog.records) == ("aborted", [])


@pytest.mark.parametrize("dialect", ENDS)
@pytest.mark.parametrize("name", REPLIES)
async def test_an_engine_that_does_not_answer_is_told_of_in_a_sentence(gateway, dialect, name):
    status, kind, reply, expected = REPLIES[name]
    opened = await gateway.open()

    async with broken(gateway, HEAD % (status, kind) + reply):
        found, answer = await ask(gateway, opened, dialect, stream=False)

    assert (found, gateway.step(opened).status) == (expected, "error")
    assert json.loads(answer)["error"]["message"]


GARBAGE = {
    "a page": (b"<html><h1>Sign in</h1></html>", "'<html><h1>Sign in</h1></html>'"),
    "an error": (b'{"error": {"message": "quota used up", "code": 429}}', "'quota used up'"),
    "another form": (b'{"choices": 5}', "'{\"choices\": 5}'"),
    "a list": (b"[1, 2]", "'[1, 2]'"),
    "cut": (b'{"choices": [{"mess', '\'{"choices": [{"mess\''),
    "nothing": (b"", "found nothing"),
    "deep": (b'{"choices":' + b"[" * 100_000, '\'{"choices":[[[['),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", GARBAGE)
async def test_what_is_no_answer_is_quoted_though_its_status_is_200(gateway, name, stream):
    reply, quoted = GARBAGE[name]
    opened = await gateway.open()

    async with broken(gateway, HEAD % (200, b"application/json") + reply):
        found, answer = await ask(gateway, opened, "chat/completions", stream=stream)

    step, message = gateway.step(opened), json.loads(answer)["error"]["message"]
    assert (found, step.status, step.error) == (502, "error", message)
    assert quoted in message
    assert len(message) < 500
