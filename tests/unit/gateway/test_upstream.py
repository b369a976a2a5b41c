"""Requests reach engines over kept connections; whatever these do, the caller gets an answer or an EngineError."""

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from agent_layer.errors import BadInputError, EngineError
from agent_layer.gateway.upstream import client as upstream_file
from agent_layer.gateway.upstream.client import Upstream

from ...waiting import scaled

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSE, HANG = object(), object()


@dataclass
class RawServer:
    """Answers each request by its script: an event is waited for, CLOSE closes, HANG waits until the client does."""

    script: list[list[object]]
    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    num_connections: int = 0
    num_closed: int = 0
    num_hung_up: int = 0

    async def serve(self, reader, writer):
        self.num_connections += 1
        try:
            while head := await self._read(reader):
                self.requests.append(head)
                for piece in self.script.pop(0):
                    if piece is CLOSE:
                        return
                    if piece is HANG:
                        await reader.read()
                        self.num_hung_up += 1
                        return
                    if isinstance(piece, asyncio.Event):
                        await piece.wait()
                    else:
                        writer.write(piece)
                        await writer.drain()
                        await asyncio.sleep(0)
        except ConnectionError:
            self.num_hung_up += 1
        finally:
            writer.close()
            self.num_closed += 1

    async def _read(self, reader):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return head + await reader.readexactly(length)


@asynccontextmanager
async def serving(*script):
    server = RawServer(list(script))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1/chat/completions"
    async with listening:
        yield server


@pytest.fixture
def client():
    kept = Upstream(connect_seconds=scaled(30.0), answer_seconds=scaled(60.0))
    yield kept
    kept.close()


async def ask(client, server, body=b"{}"):
    async with client.post(server.url, body) as reply:
        return reply.status, await reply.read()


async def test_a_request_says_what_it_is(client):
    async with serving([WHOLE]) as server:
        asking = client.post(server.url, b'{"a":1}', {"authorization": "Bearer k"})
        async with asking as reply:
            content_read = reply.status, reply.content_type, reply.header("content-length"), await reply.read()

    assert content_read == (200, "application/json", "2", b"{}")
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"authorization: Bearer k" in head
    assert body == b'{"a":1}'


async def test_a_request_of_many_pieces_arrives_whole(client):
    body = bytes(range(256)) * 20_000
    async with serving([WHOLE], [WHOLE]) as server:
        answers = [await ask(client, server, body) for _ in range(2)]

        assert answers == [(200, b"{}")] * 2
        assert [request.partition(b"\r\n\r\n")[2] for request in server.requests] == [body] * 2
        assert server.num_connections == 1


async def test_an_engine_may_answer_before_it_has_read_a_request(client, until):
    ends = []

    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(WHOLE.replace(b"200 OK", b"413 Too Large"))
        await writer.drain()
        with suppress(ConnectionError):
            await reader.read()
        ends.append("closed")
        writer.close()

    listening = await asyncio.start_server(refuse, "127.0.0.1", 0, limit=1 << 12)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    async with listening:
        for _ in range(2):
            async with client.post(url, b"x" * 50_000_000) as reply:
                assert (reply.status, await reply.read()) == (413, b"{}")
        await until(lambda: len(ends) == 2)  # neither was kept: the rest of its request would be taken for another


async def test_a_connection_is_used_again(client):
    async with serving([WHOLE], [STREAM, b"3\r\nabc\r\n", b"0\r\n\r\n"], [WHOLE]) as server:
        answers = [await ask(client, server) for _ in range(3)]

        assert answers == [(200, b"{}"), (200, b"abc"), (200, b"{}")]
        assert server.num_connections == 1


async def test_calls_at_the_same_time_have_connections_of_their_own(client, until):
    hold = asyncio.Event()
    async with serving([hold, WHOLE], [WHOLE]) as server:
        first = asyncio.create_task(ask(client, server))
        await until(lambda: server.requests)
        await ask(client, server)
        hold.set()

        assert await first == (200, b"{}")
        assert server.num_connections == 2


async def test_a_stream_is_read_as_it_comes(client):
    more = asyncio.Event()
    script = [STREAM, b"3\r\nabc\r\n", more, b"3\r\ndef\r\n0\r\n\r\n"]
    async with serving(script) as server, client.post(server.url, b"{}") as reply:
        seen = []
        async for piece in reply.pieces():
            seen.append(piece)
            more.set()

    assert seen == [b"abc", b"def"]


async def test_a_body_without_length_ends_with_the_connection(client):
    async with serving([b"HTTP/1.1 200 OK\r\n\r\n", b"ab", b"c", CLOSE], [WHOLE]) as server:
        assert await ask(client, server) == (200, b"abc")
        assert await ask(client, server) == (200, b"{}")


async def test_interim_answers_are_passed_over(client):
    async with serving(
        [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", WHOLE]
    ) as server:
        assert await ask(client, server) == (200, b"{}")


async def test_a_kept_connection_that_the_server_closed_is_replaced(client, until):
    async with serving([WHOLE, CLOSE], [WHOLE]) as server:
        await ask(client, server)
        await until(lambda: server.num_closed)

        assert await ask(client, server) == (200, b"{}")


async def test_a_request_that_met_a_closing_connection_is_sent_again(client):
    async with serving([WHOLE], [CLOSE], [WHOLE]) as server:
        await ask(client, server)

        assert await ask(client, server) == (200, b"{}")
        assert (server.num_connections, len(server.requests)) == (2, 3)


async def test_a_new_connection_that_closes_without_a_word_is_an_error(client):
    async with serving([CLOSE]) as server:
        with pytest.raises(EngineError, match="expected an answer, found the connection closed"):
            await ask(client, server)

    assert len(server.requests) == 1


async def test_old_connections_are_not_used_again(client, monkeypatch):
    monkeypatch.setattr(upstream_file, "_KEEPALIVE_SECONDS", 0.0)
    async with serving([WHOLE], [WHOLE]) as server:
        await ask(client, server)
        await ask(client, server)

        assert server.num_connections == 2


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", CLOSE],
        [STREAM, b"3\r\nab", CLOSE],
        [STREAM, b"3\r\nabc\r\n", CLOSE],
        [STREAM, b"nonsense\r\n"],
        [b"HTTP/1.1 20", CLOSE],
        [b"SSH-2.0-OpenSSH\r\n\r\n"],
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_answer_that_breaks_off_is_an_error(client, pieces, is_streamed):
    async with serving(pieces, [WHOLE]) as server:
        with pytest.raises(EngineError, match=server.url):
            async with client.post(server.url, b"{}") as reply:
                await ([piece async for piece in reply.pieces()] if is_streamed else reply.read())

        assert await ask(client, server) == (200, b"{}")


async def test_an_engine_that_takes_too_long_is_an_error(until):
    client = Upstream(connect_seconds=scaled(30.0), answer_seconds=0.05)
    async with serving([STREAM, b"3\r\nabc\r\n", HANG]) as server:
        with pytest.raises(EngineError, match=r"within 0\.05 s"):
            await ask(client, server)
        await until(lambda: server.num_hung_up)


async def test_an_engine_that_is_away_is_an_error(client, unused_tcp_port):
    with pytest.raises(EngineError, match="expected to connect"):
        async with client.post(f"http://127.0.0.1:{unused_tcp_port}/v1", b"{}"):
            pass


@pytest.mark.parametrize("pieces", [[], [STREAM, b"3\r\nabc\r\n"]])
async def test_a_cancelled_call_closes_its_connection_so_that_the_engine_stops(client, until, pieces):
    async with serving([*pieces, HANG]) as server:
        call = asyncio.create_task(ask(client, server))
        await until(lambda: server.requests)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: server.num_hung_up)


async def test_leaving_early_closes_the_connection(client, until):
    async with serving([STREAM, b"3\r\nabc\r\n", HANG]) as server:
        async with client.post(server.url, b"{}") as reply:
            await anext(reply.pieces())

        await until(lambda: server.num_hung_up)


async def test_a_reader_that_is_behind_holds_the_engine_back(client, until):
    num_chunks = 400
    chunk = b"10000\r\n" + b"x" * (1 << 16) + b"\r\n"
    script = [STREAM, *[chunk] * num_chunks, b"0\r\n\r\n"]
    async with serving(script) as server, client.post(server.url, b"{}") as reply:
        await until(lambda: reply._connection._is_paused)
        num_read = sum([len(piece) async for piece in reply.pieces()])

    assert num_read == num_chunks << 16


async def test_a_large_body_is_read_whole(client):
    body = b"x" * (8 << 20)
    async with serving([b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body]) as server:
        assert await ask(client, server, b"y" * (2 << 20)) == (200, body)


@pytest.mark.parametrize("url", ["ftp://x/", "http://", "http://h:99999999/", "http://ä/"])
async def test_an_address_that_is_none_is_refused(client, url):
    with pytest.raises(BadInputError):
        async with client.post(url, b"{}"):
            pass
