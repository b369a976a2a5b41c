"""This program carries connections, and can be cut: ``relay.py LISTEN=TARGET …``.

Both are HOST:PORT or the path of a socket.

It prints the port (or path) of each listener on one line, then reads words, and says each again once it holds:
``silent`` (the relay forwards nothing and resets nothing), ``closed`` (connections are reset, new ones refused) and
``healed``. What was held back in silence arrives then, as after a network's outage. Ends with its standard input.
"""

import asyncio
import socket
import sys
from contextlib import suppress

_CHUNK_BYTES = 1 << 16


class Relay:
    """One listener and the connections that it carries."""

    def __init__(self, listen: str, target: str) -> None:
        self._listen, self._target = listen, target
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        if "/" in self._listen:
            self._server = await asyncio.start_unix_server(self._accept, self._listen)
            return self._listen
        host, _, port = self._listen.rpartition(":")
        self._server = await asyncio.start_server(self._accept, host, int(port))
        bound: int = self._server.sockets[0].getsockname()[1]
        self._listen = f"{host}:{bound}"
        return str(bound)

    async def become(self, mood: str) -> None:
        match mood:
            case "silent":
                self._is_open.clear()
            case "closed":
                self._close()
            case _:
                self._is_open.set()
                if self._server is None:
                    await self.start()

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            if (carried := writer.get_extra_info("socket")) is not None and carried.family != socket.AF_UNIX:
                carried.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            writer.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._is_open.wait()
        try:
            far_reader, far_writer = await _connect(self._target)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, far_writer}
        with suppress(OSError):  # one side was reset: the other one hears of it, too
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        self._writers -= {writer, far_writer}
        writer.close()
        far_writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(_CHUNK_BYTES):
            await self._is_open.wait()
            writer.write(content)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _connect(target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if "/" in target:
        return await asyncio.open_unix_connection(target)
    host, _, port = target.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def main(routes: list[str]) -> None:
    relays = [Relay(*route.split("=", 1)) for route in routes]
    places = [await relay.start() for relay in relays]
    print(*places, flush=True)  # noqa: T201  # what the starter reads
    loop = asyncio.get_running_loop()
    while word := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        for relay in relays:
            await relay.become(word)
        print(word, flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
