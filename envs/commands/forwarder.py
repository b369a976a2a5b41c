"""Carries connections over one pair of streams; in a box, those of a loopback port over standard input and output.

Both ends run this code, the one in the box on its standard library alone. Frames are ``connection, kind, size`` and
bytes. Each direction of a connection ends by itself, as in TCP. A window bounds what is under way in it, so that a
reader that waits holds up no other. A program of the box that breaks this reaches what the other end offers: its own
gateway.
"""

import asyncio
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count

HEADER = struct.Struct(">IBI")
READY, OPEN, BYTES, END, RESET, CREDIT = range(6)
"""Kinds of frames: the port is open; a connection begins; bytes; its sender sends nothing more; it is broken off;
number of bytes that the receiver has passed on."""
CHUNK = 1 << 16
WINDOW = 1 << 18
"""Bytes of one direction that are sent before any is passed on."""
MAX_LANES = 256
"""Connections that the other end may begin at the same time."""


class Lane:
    """One connection: what arrives for it, and how much may be sent."""

    def __init__(self, number: int, send_frame: Callable[[int, int, "bytes | int"], Awaitable[None]]) -> None:
        self._number = number
        self._send_frame = send_frame
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue()
        """Empty: nothing more comes."""
        self._num_waiting = 0
        self._has_ended = False
        """The other end sends nothing more."""
        self._credit = WINDOW
        self._has_credit = asyncio.Event()
        self._is_broken = asyncio.get_running_loop().create_future()

    def put(self, kind: int, size: int, chunk: bytes) -> None:
        """Take a frame; never waits."""
        self._num_waiting += len(chunk)
        if kind == CREDIT:
            self._credit += size
            self._has_credit.set()
        elif not self._has_ended and (kind == END or (kind == BYTES and chunk and self._num_waiting <= WINDOW)):
            self._has_ended = kind == END
            self._arrived.put_nowait(chunk)
        elif not self._is_broken.done():
            self._is_broken.set_result(None)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry both directions to their ends, or break the connection off at both of its ends."""
        tasks = [asyncio.ensure_future(one) for one in (self._send(reader), self._receive(writer))]
        both = asyncio.gather(*tasks)
        both.add_done_callback(lambda one: one.cancelled() or one.exception())  # else asyncio logs that none read it
        try:
            await asyncio.wait({both, self._is_broken}, return_when=asyncio.FIRST_COMPLETED)
            if not both.done() or both.exception() is not None:
                abort(writer)
                await self.reset()
        finally:
            for one in (*tasks, both, self._is_broken):
                one.cancel()
            writer.close()

    async def reset(self) -> None:
        """Break it off at the other end."""
        await self._send_frame(self._number, RESET, 0)

    async def _send(self, reader: asyncio.StreamReader) -> None:
        while True:
            while self._credit <= 0:
                self._has_credit.clear()
                await self._has_credit.wait()
            chunk = await reader.read(min(CHUNK, self._credit))
            self._credit -= len(chunk)
            await self._send_frame(self._number, BYTES if chunk else END, chunk)
            if not chunk:
                return

    async def _receive(self, writer: asyncio.StreamWriter) -> None:
        while chunk := await self._arrived.get():
            writer.write(chunk)
            await writer.drain()
            self._num_waiting -= len(chunk)
            await self._send_frame(self._number, CREDIT, len(chunk))
        if writer.can_write_eof():
            writer.write_eof()
        else:  # TLS ends both directions at once
            writer.close()


def abort(writer: asyncio.StreamWriter) -> None:
    """Break a connection off so that its peer takes it for no end: by a reset."""
    with suppress(OSError):  # it is closed
        if (connection := writer.get_extra_info("socket")) is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Carrier:
    """Connections of one pair of streams.

    Args:
        source: frames of the other end.
        sink: frames for it.
        connect: makes a connection that the other end begins; None: it begins none.
        on_ready: called when the other end's port is open.
    """

    def __init__(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        connect: "Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] | None" = None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._source, self._sink = source, sink
        self._connect, self._on_ready = connect, on_ready
        self._sending = asyncio.Lock()
        self._lanes: dict[int, Lane] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self._numbers = count(1)

    async def run(self) -> None:
        """Hand on frames until the source ends, or is no carrier; then its connections end."""
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    number, kind, size = HEADER.unpack(await self._source.readexactly(HEADER.size))
                    if kind == BYTES and size > CHUNK:
                        return
                    chunk = await self._source.readexactly(size) if kind == BYTES else b""
                    if kind == OPEN and number not in self._lanes and len(self._lanes) >= MAX_LANES:
                        await self.send_frame(number, RESET, 0)  # its sender waits: what it asks for takes no memory
                    else:
                        self._take_frame(number, kind, size, chunk)
        finally:
            for task in self._tasks:
                task.cancel()
            for lane in self._lanes.values():
                lane.put(RESET, 0, b"")
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _take_frame(self, number: int, kind: int, size: int, chunk: bytes) -> None:
        if (lane := self._lanes.get(number)) is not None:
            lane.put(kind, size, chunk)
        elif kind == READY:
            self._on_ready()
        elif kind == OPEN and self._connect is not None:
            task = asyncio.ensure_future(self._accept(number, self._add_lane(number), self._connect))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection that begins at this end."""
        number = next(self._numbers)
        lane = self._add_lane(number)
        try:
            with suppress(ConnectionError):  # the other end is gone
                await self.send_frame(number, OPEN, 0)
                await lane.carry(reader, writer)
        finally:
            del self._lanes[number]

    async def send_frame(self, number: int, kind: int, content: "bytes | int") -> None:
        """Send bytes, or a size without bytes."""
        size, chunk = (content, b"") if isinstance(content, int) else (len(content), content)
        async with self._sending:
            self._sink.write(HEADER.pack(number, kind, size) + chunk)
            await self._sink.drain()

    async def _accept(
        self,
        number: int,
        lane: Lane,
        connect: Callable[[], "Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]"],
    ) -> None:
        try:
            with suppress(ConnectionError):
                try:
                    streams = await connect()
                except OSError:  # the client meets a connection that is broken off, and may try again
                    return await lane.reset()
                await lane.carry(*streams)
        finally:
            del self._lanes[number]

    def _add_lane(self, number: int) -> Lane:
        lane = self._lanes[number] = Lane(number, self.send_frame)
        return lane


async def forward(port: int) -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    source = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(source), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    carrier = Carrier(source, asyncio.StreamWriter(transport, protocol, None, loop))
    await asyncio.start_server(carrier.serve, "127.0.0.1", port)
    await carrier.send_frame(0, READY, 0)
    await carrier.run()


if __name__ == "__main__":
    asyncio.run(forward(int(sys.argv[1])))
