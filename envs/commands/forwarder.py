"""Forwards a loopback port of a box over standard input and output; runs in the box, on the standard library alone.

Frames are ``number, length, bytes``: of one connection, in both directions. Length 0 ends a connection; connection 0
tells that the port is open. A program that breaks this in the box reaches what the other end offers: its own gateway.
"""

import asyncio
import struct
import sys
from itertools import count

HEADER = struct.Struct(">II")
CHUNK = 1 << 16


async def forward(port: int) -> None:
    """Serve until standard input ends."""
    loop, numbers = asyncio.get_running_loop(), count(1)
    source = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(source), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    sink = asyncio.StreamWriter(transport, protocol, None, loop)
    clients: dict[int, asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = next(numbers)
        clients[number] = writer
        try:
            while chunk := await reader.read(CHUNK):
                sink.write(HEADER.pack(number, len(chunk)) + chunk)
                await sink.drain()
        except ConnectionError:  # the client is gone
            writer.close()
        sink.write(HEADER.pack(number, 0))

    async with await asyncio.start_server(serve, "127.0.0.1", port):
        sink.write(HEADER.pack(0, 0))
        while True:
            number, length = HEADER.unpack(await source.readexactly(HEADER.size))
            chunk = await source.readexactly(length)
            if (writer := clients.get(number)) is not None and chunk:
                writer.write(chunk)  # without waiting: a client that does not read holds up no other
            elif writer is not None:
                del clients[number]
                writer.close()


if __name__ == "__main__":
    try:
        asyncio.run(forward(int(sys.argv[1])))
    except asyncio.IncompleteReadError:  # the worker has closed it
        sys.exit(0)
