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
    "no token id": (BEGIN + event(1 << 40, finish="stop") + DONE, "error"),
    "an error": (BEGIN + b'data: {"error": {"message": "no memory"}}\n\n' + DONE, "error"),
    "a text as error": (BEGIN + b'data: {"error": "no memory"}\n\n', "error"),
}
ENDS = {"chat/completions": "[DONE]", "messages": "message_stop", "responses": "response.completed"}
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
async def broken(gateway, said):
    """An engine that sends this and disconnects, in place of the gateway's own."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
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
    asked = {"model": "m", "max_tokens": 9, "stream": stream, "messages": [{"role": "user", "content": "x"}]}
    asked = {"model": "m", "input": "x", "stream": stream} if dialect == "responses" else asked
    headers = {"Authorization": f"Bearer {opened['api_key']}"}
    async with gateway.session.post(f"{opened['base_url']}/{dialect}", json=asked, headers=headers) as reply:
        return reply.status, (await reply.read()).decode("utf-8", "replace")


@pytest.mark.parametrize("dialect", ENDS)
@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_ends_for_the_client_as_it_is_recorded(gateway, dialect, name):
    said, status = STREAMS[name]
    opened = await gateway.open()

    async with broken(gateway, HEAD % (200, b"text/event-stream") + said):
        _, told = await ask(gateway, opened, dialect, stream=True)

    step = gateway.step(opened)
    assert step.status == status
    if status == "ok":
        assert (ENDS[dialect] in told, "error" in told.replace('"error":null', "")) == (True, False)
        assert (list(step.action.response_token_ids), step.action.message["content"]) == ([5, 6], "hello")
    elif dialect != "chat/completions":
        assert (ENDS[dialect] in told, '"error"' in told) == (False, True)


async def test_an_answer_with_fewer_log_probabilities_than_tokens_is_a_finding(gateway):
    opened = await gateway.open(group_id="g")
    said = BEGIN + event(6, num_logprobs=0, content="lo", finish="stop") + DONE

    async with broken(gateway, HEAD % (200, b"text/event-stream") + said):
        await ask(gateway, opened, "chat/completions", stream=True)

    step = gateway.step(opened)
    assert (step.status, step.capture_level, step.findings) == ("ok", "logprobs", ["no_logprobs"])
    with pytest.raises(CaptureError, match="a log-probability for each sampled token"):
        samples_of(gateway.log.trajectory(opened["trajectory_id"]))


async def test_a_client_that_falls_behind_and_leaves_is_no_error(gateway, until, caplog):
    opened = await gateway.open()
    host, port = gateway.url.removeprefix("http://").split(":")
    asked = json.dumps({"stream": True, "messages": [{"role": "user", "content": "x"}]}).encode()
    head = (
        f"POST /r/{opened['trajectory_id']}/v1/chat/completions HTTP/1.1\r\nHost: h\r\nx-api-key: {opened['api_key']}"
    )

    async with broken(gateway, HEAD % (200, b"text/event-stream") + BEGIN * 100_000):
        reader, writer = await asyncio.open_connection(host, int(port), limit=1000)
        writer.write(b"%b\r\nContent-Length: %d\r\n\r\n%b" % (head.encode(), len(asked), asked))
        await reader.readuntil(b"hel")
        writer.transport.abort()
        await until(lambda: gateway.log.parts("end"))

    assert (gateway.step(opened).status, caplog.records) == ("aborted", [])


@pytest.mark.parametrize("dialect", ENDS)
@pytest.mark.parametrize("name", REPLIES)
async def test_an_engine_that_does_not_answer_is_told_of_in_a_sentence(gateway, dialect, name):
    status, kind, said, expected = REPLIES[name]
    opened = await gateway.open()

    async with broken(gateway, HEAD % (status, kind) + said):
        found, told = await ask(gateway, opened, dialect, stream=False)

    assert (found, gateway.step(opened).status) == (expected, "error")
    assert json.loads(told)["error"]["message"]
