"""Connections over one pair of streams: whole in both directions; each direction ends by itself."""

import asyncio
import gc
import random
import socket
from contextlib import asynccontextmanager

import pytest

from envs.commands import forwarder

from ....waiting import until


@asynccontextmanager
async def open_way(serve):
    """A port whose connections end at this server, over two pipes of frames, as a box and its worker have them."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    ours, theirs = socket.socketpair()
    ends = [await asyncio.open_connection(sock=one) for one in (ours, theirs)]
    outside = forwarder.Carrier(
        *ends[0],
        lambda: asyncio.open_connection(*server.sockets[0].getsockname()),
    )
    inside = forwarder.Carrier(*ends[1])
    port = await asyncio.start_server(inside.serve, "127.0.0.1", 0)
    running = [asyncio.create_task(one.run()) for one in (outside, inside)]
    yield port.sockets[0].getsockname(), outside
    for one in running:
        one.cancel()
    await asyncio.wait(running)
    await until(lambda: not inside._lanes)
    for one in (server, port, *(writer for _, writer in ends)):
        one.close()
    await asyncio.sleep(0)  # closed in the next turn of the loop


async def echo(reader, writer):
    """Answer in capitals, once the question has ended."""
    question = await reader.read()
    writer.write(question.upper())
    writer.close()


@pytest.mark.parametrize("seed", range(4))
async def test_each_direction_is_whole_and_ends_by_itself_whatever_the_sizes(seed):
    chance = random.Random(seed)  # no secret

    async def ask(address):
        reader, writer = await asyncio.open_connection(*address)
        question = chance.randbytes(chance.choice([1, 1000, forwarder.CHUNK, forwarder.WINDOW * 3 + 7]))
        cuts = sorted(chance.choices(range(len(question) + 1), k=chance.randrange(6)))
        for begin, end in zip([0, *cuts], [*cuts, len(question)], strict=True):
            writer.write(question[begin:end])
            await asyncio.sleep(0)
        writer.write_eof()
        assert await reader.read() == question.upper()
        writer.close()

    async with open_way(echo) as (address, _):
        await asyncio.gather(*(ask(address) for _ in range(8)))


async def test_one_that_waits_holds_up_no_other_and_keeps_a_bounded_amount():
    """A client that does not read, a server that does not read, and one that cannot be reached yet."""
    taken, is_free = [0], asyncio.Event()

    async def serve(reader, writer):
        match await reader.readexactly(1):
            case b"r":  # does not read
                await is_free.wait()
            case b"w":  # writes without end, to a client that does not read
                while not is_free.is_set():
                    writer.write(b"x" * 65536)
                    taken[0] += 65536
                    await writer.drain()
            case _:
                writer.write(b"answer")
        writer.close()

    async with open_way(serve) as (address, _):
        deaf_reader, deaf = await asyncio.open_connection(*address)
        deaf.write(b"w")
        _, stuck = await asyncio.open_connection(*address)
        stuck.write(b"r" + b"x" * (64 << 20))
        await until(lambda: taken[0] > 0)

        for _ in range(5):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"q")
            assert await reader.read() == b"answer"
            writer.close()

        assert taken[0] < 32 << 20  # buffers of sockets, and one window
        is_free.set()
        for one in (deaf, stuck):
            one.transport.abort()
        del deaf_reader


@pytest.mark.parametrize("who", ["client", "server"])
async def test_a_connection_that_is_broken_off_is_broken_off_at_both_ends(who):
    broken = asyncio.Event()

    async def serve(reader, writer):
        await reader.readexactly(1)
        if who == "server":
            forwarder.abort(writer)
            return
        writer.write(b"x")
        try:
            while await reader.read(1):
                pass
        except ConnectionError:
            pass
        broken.set()

    async with open_way(serve) as (address, outside):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"q")
        if who == "client":
            await reader.readexactly(1)
            forwarder.abort(writer)
            await until(broken.is_set)
        else:
            with pytest.raises(ConnectionError):
                await reader.read()
        await until(lambda: not outside._lanes)


async def test_a_server_that_is_away_ends_the_connection_and_the_next_may_succeed():
    async with open_way(echo) as (address, outside):
        connect, outside._connect = outside._connect, lambda: asyncio.open_connection("127.0.0.1", 1)
        reader, writer = await asyncio.open_connection(*address)
        with pytest.raises(ConnectionError):
            await reader.readexactly(1)
        outside._connect = connect
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"again")
        writer.write_eof()
        assert await reader.read() == b"AGAIN"
        writer.close()


async def test_frames_that_keep_no_window_break_their_connection_alone(caplog):
    gc.collect()  # what other tests left is not told of here
    caplog.clear()
    async with open_way(echo) as (address, outside):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"x")
        await until(lambda: outside._lanes)
        for _ in range(forwarder.WINDOW // forwarder.CHUNK + 1):
            outside._lanes[1].put(forwarder.BYTES, forwarder.CHUNK, b"y" * forwarder.CHUNK)
        with pytest.raises(ConnectionError):
            await reader.readexactly(1)
        await until(lambda: not outside._lanes)
    gc.collect()
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text


async def test_an_end_that_opens_connections_without_end_takes_no_memory_for_them():
    """A program of the box writes the frames itself, and reads no answer."""
    async with open_way(echo) as (_, outside):
        ours, theirs = socket.socketpair()
        flooded = forwarder.Carrier(*await asyncio.open_connection(sock=ours), outside._connect)
        running = asyncio.create_task(flooded.run())
        _, flood = await asyncio.open_connection(sock=theirs)
        flood.transport.pause_reading()
        flood.write(b"".join(forwarder.HEADER.pack(one, forwarder.OPEN, 0) for one in range(1, 20_000)))
        await until(lambda: len(flooded._lanes) >= forwarder.MAX_LANES)
        await until(lambda: flood.transport.get_write_buffer_size() == 0 or flooded._sending.locked())

        assert len(flooded._lanes) <= forwarder.MAX_LANES
        flood.transport.abort()
        await running


async def test_a_direction_ends_once():
    lane = forwarder.Lane(1, lambda *_: asyncio.sleep(0))

    for _ in range(1000):
        lane.put(forwarder.END, 0, b"")

    assert lane._arrived.qsize() == 1
    assert lane._is_broken.done()
