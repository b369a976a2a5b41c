"""Requests that are broken on purpose: refused in the dialect's shape, without a traceback in the log."""

import asyncio
import json
import threading
import zlib

import pytest

from agent_layer.gateway.calls import delivery
from agent_layer.gateway.calls.requests import _LARGE_BODIES as LARGE_BODIES
from agent_layer.gateway.rollouts.rollout import PromptContents

from ...waiting import within

TALK = (
    b'{"messages": [{"role": "user", "content": "x"}], "input": "x", "max_tokens": 5,'
    b' "contents": [{"role": "user", "parts": [{"text": "x"}]}]}'
)
DIALECTS = ("chat/completions", "messages", "responses", "models/m:generateContent")


@pytest.fixture
def tracebacks(caplog):
    """Return the messages that were logged with a traceback."""
    caplog.set_level("INFO")
    return lambda: [record.getMessage() for record in caplog.records if record.exc_info]


async def send_bytes(gateway, *pieces):
    """Send bytes as they are; return (status, answer)."""
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for piece in pieces:
        writer.write(piece)
    content_read = await reader.read()
    writer.close()
    head, _, body = content_read.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def build_request_bytes(opened, path, body=TALK, **headers):
    head = f"POST /r/{opened['trajectory_id']}/v1/{path} HTTP/1.1\r\nHost: here\r\nx-api-key: {opened['api_key']}\r\n"
    answer = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"{head}{answer}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def is_error(dialect, answer):
    error = answer["error"]
    is_anthropic = answer.get("type") == "error" and isinstance(error.get("type"), str)
    is_own = {"messages": is_anthropic, DIALECTS[-1]: isinstance(error.get("status"), str)}
    return isinstance(error["message"], str) and is_own.get(dialect, "param" in error)


@pytest.mark.parametrize("coding", ["zstd", "br", "lz4", "gzip, br"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_encoding_that_cannot_be_undone_is_refused(gateway, tracebacks, dialect, coding):
    opened = await gateway.open()

    status, answer = await send_bytes(gateway, build_request_bytes(opened, dialect, content_encoding=coding))

    assert (status, is_error(dialect, answer), tracebacks()) == (415, True, [])
    assert "plain" in answer["error"]["message"]
    assert gateway.log.parts() == []


async def test_gzip_and_deflate_are_undone(gateway):
    opened = await gateway.open()
    packed = zlib.compress(TALK)

    assert (await send_bytes(gateway, build_request_bytes(opened, "messages", packed, content_encoding="Deflate")))[
        0
    ] == 200


async def test_a_broken_body_leaves_no_traceback(gateway, tracebacks):
    opened = await gateway.open()

    status, answer = await send_bytes(gateway, build_request_bytes(opened, "messages", content_encoding="gzip"))

    assert (status, is_error("messages", answer), tracebacks()) == (400, True, [])


@pytest.mark.parametrize("path", ["/v1/mess\u00e4ges", "http://[/v1/messages", "/v1/messages HTTP/1.1\r\nno header"])
async def test_a_head_that_is_no_http_is_refused_in_all_shapes(gateway, tracebacks, path):
    status, answer = await send_bytes(gateway, f"POST {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())

    assert (status, tracebacks()) == (400, [])
    assert all(is_error(dialect, answer) for dialect in DIALECTS)


async def test_a_client_that_does_not_finish_its_head_is_hung_up_on(settings, run_gateway):
    mine = settings.model_copy(update={"api_key": "operator-key", "header_seconds": 0.2})
    async with run_gateway(mine) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        for before in (b"", b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"):  # a new connection, and a used one
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(before)
            if before:
                assert await reader.readuntil(b"\r\n\r\n")
            writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: he")

            async with within(60, "the end of the connection"):
                assert b"HTTP/1.1" not in await reader.read()

            writer.close()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_unforeseen_error_has_the_shape_of_the_dialect(gateway, dialect):
    opened = await gateway.open()
    append, gateway.log.append = gateway.log.append, None  # what no log is

    status, answer = await send_bytes(gateway, build_request_bytes(opened, dialect))

    gateway.log.append = append
    assert (status, is_error(dialect, answer)) == (500, True)


def of_tiny_messages(number):
    return b'{"messages": [%b], "max_tokens": 5}' % b",".join([b'{"role":"user","content":""}'] * number)


@pytest.mark.parametrize(
    "dialect", ["chat/completions", "messages", "messages/count_tokens", DIALECTS[-1], "models/m:countTokens"]
)
async def test_more_messages_than_a_process_can_bear_are_refused(gateway, dialect):
    opened = await gateway.open()

    for number, setting in ((10_001, "AGENT_LAYER_MAX_MESSAGES"), (1_000_000, "AGENT_LAYER_MAX_BODY_VALUES")):
        body = of_tiny_messages(number)
        if dialect.startswith("models/"):
            body = body.replace(b"messages", b"contents").replace(b'"content"', b'"parts"').replace(b'""', b"[]")
        status, answer = await send_bytes(gateway, build_request_bytes(opened, dialect, body))

        assert (status, setting in answer["error"]["message"]) == (400, True)
    assert gateway.log.parts() == []


async def test_limits_of_bodies_are_settings(settings, run_gateway):
    limits = {"max_messages": 3, "max_body_depth": 4, "max_body_values": 50}
    async with run_gateway(settings.model_copy(update={"api_key": "operator-key", **limits})) as gateway:
        opened = await gateway.open()
        inside, deep = of_tiny_messages(3), b'{"messages": [], "x": [[[[1]]]]}'
        command = (inside, of_tiny_messages(51), deep, b'{"messages": [], "x": [%b0]}' % (b"0," * 60))
        statuses = [(await send_bytes(gateway, build_request_bytes(opened, DIALECTS[0], body)))[0] for body in command]

    assert statuses == [200, 400, 400, 400]


def in_large_message(text=b"x" * 300_000):
    return b'{"messages": [{"role": "user", "content": "%b"}]}' % text


PACKED = zlib.compress(TALK)


@pytest.mark.parametrize(
    ("body", "headers"), [(in_large_message(), {}), (PACKED, {"content_encoding": "gzip"})], ids=["large", "packed"]
)
async def test_a_large_body_is_read_beside_the_event_loop(gateway, until, body, headers):
    opened, is_free = await gateway.open(), threading.Event()
    LARGE_BODIES.submit(is_free.wait)  # whatever is read there takes its time
    request = asyncio.create_task(send_bytes(gateway, build_request_bytes(opened, DIALECTS[0], body, **headers)))
    try:
        await until(LARGE_BODIES._work_queue.qsize)

        assert (await gateway.session.get(f"{gateway.url}/health")).status == 200
        assert (await gateway.chat(opened, "short"))[0] == 200
        assert not request.done()
    finally:
        is_free.set()
    assert (await request)[0] == 200


@pytest.mark.parametrize("body", [in_large_message(), TALK])
async def test_what_grows_with_a_body_is_done_beside_the_event_loop(settings, run_gateway, log, monkeypatch, body):
    threads = {}

    def watch(owner, name):
        work = getattr(owner, name)

        def watched(*arguments, **options):
            threads.setdefault(name, set()).add(threading.current_thread().name.partition("_")[0])
            return work(*arguments, **options)

        monkeypatch.setattr(owner, name, watched)

    watch(log, "prepare")
    watch(PromptContents, "hash_answers")
    watch(delivery, "read_answer")
    async with run_gateway(settings.model_copy(update={"api_key": "operator-key"})) as gateway:
        opened = await gateway.open()
        threads.clear()
        assert (await send_bytes(gateway, build_request_bytes(opened, DIALECTS[0], body)))[0] == 200

    beside = {name for name, names in threads.items() if "large bodies" in names}
    assert beside == (set() if body is TALK else {"prepare", "hash_answers", "read_answer"})


async def test_a_body_that_unpacks_to_more_than_the_limit_is_refused(settings, run_gateway):
    limits = {"api_key": "operator-key", "max_body_bytes": 100_000}
    async with run_gateway(settings.model_copy(update=limits)) as gateway:
        opened = await gateway.open()
        answers = []
        for padding in (99_900, 200_000, 50_000_000):
            packed = zlib.compress(TALK + b" " * (padding - len(TALK)))
            answers.append(
                await send_bytes(gateway, build_request_bytes(opened, "messages", packed, content_encoding="gzip"))
            )

    assert [status for status, _ in answers] == [200, 413, 413]
    assert "AGENT_LAYER_MAX_BODY_BYTES" in answers[-1][1]["error"]["message"]


@pytest.mark.parametrize("packed", [PACKED[:-3], PACKED + PACKED])
async def test_a_packed_body_that_ends_elsewhere_is_refused(gateway, packed):
    opened = await gateway.open()

    assert (await send_bytes(gateway, build_request_bytes(opened, "messages", packed, content_encoding="gzip")))[
        0
    ] == 400


async def test_the_large_bodies_of_one_rollout_wait_for_each_other_and_for_no_others(
    settings, run_gateway, hold, until
):
    limits = {"api_key": "operator-key", "max_body_bytes": 400_000}
    async with run_gateway(settings.model_copy(update=limits)) as gateway:
        opened, other = await gateway.open(), await gateway.open()
        go_on, large = hold(gateway.engine), in_large_message()
        asking = [
            asyncio.create_task(send_bytes(gateway, build_request_bytes(one, DIALECTS[0], large)))
            for one in (opened, opened, opened, other)
        ]
        await until(lambda: gateway.engine.num_running == 3)

        asking.append(asyncio.create_task(gateway.chat(opened, "short")))
        await until(lambda: gateway.engine.num_running == 4)
        assert not any(one.done() for one in asking)
        go_on.set()

        assert [(await one)[0] for one in asking] == [200] * 5
    assert len(gateway.engine.calls) == 5


async def test_a_body_of_unknown_length_holds_no_more_than_it_has(settings, run_gateway, hold, until):
    async with run_gateway(settings.model_copy(update={"api_key": "operator-key"})) as gateway:
        opened, go_on = await gateway.open(), hold(gateway.engine)
        head, _, body = build_request_bytes(opened, "messages", transfer_encoding="chunked").partition(b"\r\n\r\n")
        head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length"))
        chunked = b"%b\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (head, len(body), body)
        asking = [asyncio.create_task(send_bytes(gateway, chunked)) for _ in range(4)]
        await until(lambda: gateway.engine.num_running == 4)
        go_on.set()

        assert [(await one)[0] for one in asking] == [200] * 4


async def test_a_conversation_that_is_remembered_may_hold_no_more_messages_than_one_that_is_sent(settings, run_gateway):
    async with run_gateway(settings.model_copy(update={"api_key": "operator-key", "max_messages": 3})) as gateway:
        opened = await gateway.open()
        path = f"/r/{opened['trajectory_id']}/v1/responses"
        fields = {"input": [{"role": "user", "content": text} for text in "ab"]}
        _, before = await gateway.post(path, fields, opened["api_key"])

        status, answer = await gateway.post(path, {"input": "c", "previous_response_id": before["id"]})

    assert (status, "AGENT_LAYER_MAX_MESSAGES" in answer["error"]["message"]) == (400, True)


async def test_a_response_does_not_repeat_megabytes_of_its_request(gateway):
    opened, long, answer = await gateway.open(), "x" * (1 << 20), []

    for instructions in ("be brief", long):
        body = json.dumps({"input": "a", "instructions": instructions}).encode()
        answer.append((await send_bytes(gateway, build_request_bytes(opened, "responses", body)))[1]["instructions"])

    assert answer == ["be brief", None]
    assert gateway.engine.calls[1].body["messages"][0] == {"role": "system", "content": long}
