"""Way from a box to its gateway: a loopback port inside, whose connections end at one address outside.

The box has no network. A program in it (``forwarder``) carries the connections over its standard streams, so that any
kind of box will do, and nothing of the host becomes visible inside.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from agent_layer.errors import AgentFailedError, SandboxError
from agent_layer.schema.sandbox import Process, Sandbox
from envs.commands import forwarder

_PORT: Final = 47113
"""Port in the box that programs there are unlikely to use."""
_PROGRAM: Final = Path(forwarder.__file__)
_OPEN_SECONDS: Final = 60.0
_AGAIN_SECONDS: Final = 0.1
"""Before the forwarder is started again that a command of the box has killed."""
_MAX_CONNECTIONS: Final = 256
_MAX_FRAME_LENGTH: Final = 1 << 20


@asynccontextmanager
async def open_tunnel(box: Sandbox, url: str) -> AsyncGenerator[str]:
    """Forward a port of the box to the server of this address, during the block; return the address in the box.

    Raises:
        AgentFailedError: the box has no python3.
        SandboxError: the box was lost, or is too slow.
    """
    tunnel = _Tunnel(box, url)
    running = asyncio.create_task(tunnel.run())
    try:
        opened = asyncio.create_task(tunnel.is_open.wait())
        await asyncio.wait({running, opened}, timeout=_OPEN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        if running.done():
            await running
        if not tunnel.is_open.is_set():
            raise SandboxError(
                f"sandbox {box.id}: its way to the gateway was not open in {_OPEN_SECONDS:g} s; try again"
            )
        yield f"http://127.0.0.1:{_PORT}{urlsplit(url).path}"
    finally:
        running.cancel()
        await asyncio.wait({running})


class _Tunnel:
    def __init__(self, box: Sandbox, url: str) -> None:
        parts = urlsplit(url)
        self._box = box
        self._host = parts.hostname or ""
        self._is_secure = parts.scheme == "https"
        self._port = parts.port or (443 if self._is_secure else 80)
        self.is_open = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled; a forwarder that a command of the box kills is started again."""
        command = ["python3", "-I", "-c", _PROGRAM.read_text(encoding="utf-8"), str(_PORT)]
        while True:
            async with self._box.open(command, cwd="/") as process:
                await self._serve(process)
                ended = await process.wait()
                if not self.is_open.is_set():
                    why = (await process.stderr.read()).decode(errors="replace").strip()[-500:]
                    raise AgentFailedError(
                        f"sandbox {self._box.id}: its way to the gateway does not open, {why or ended.status}; the box"
                        " needs python3 on its PATH"
                    )
                if ended.status == "gone":
                    return
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _serve(self, process: Process) -> None:
        """Carry connections until the forwarder ends."""
        connections: dict[int, _Connection] = {}
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    header = await process.stdout.readexactly(forwarder.HEADER.size)
                    number, length = forwarder.HEADER.unpack(header)
                    if length > _MAX_FRAME_LENGTH:  # not our forwarder
                        return
                    chunk = await process.stdout.readexactly(length)
                    if number == 0:
                        self.is_open.set()
                        continue
                    if number not in connections and chunk:
                        connections[number] = await self._connect(process, number, len(connections))
                    if number in connections:
                        await connections[number].send(chunk)
                    if not chunk:
                        connections.pop(number, None)
        finally:
            for connection in connections.values():
                connection.close()

    async def _connect(self, process: Process, number: int, num_open: int) -> "_Connection":
        connection = _Connection(process, number)
        context = ssl.create_default_context() if self._is_secure else None
        if num_open < _MAX_CONNECTIONS:
            with suppress(OSError):  # the gateway is away: the client meets a closed connection, and may try again
                connection.open(*await asyncio.open_connection(self._host, self._port, ssl=context))
        return connection


class _Connection:
    """One connection of the box, to the gateway."""

    def __init__(self, process: Process, number: int) -> None:
        self._process = process
        self._number = number
        self._writer: asyncio.StreamWriter | None = None
        self._answering: asyncio.Task[None] | None = None

    def open(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry what the gateway answers."""
        self._writer = writer
        self._answering = asyncio.create_task(self._answer(reader))

    async def send(self, chunk: bytes) -> None:
        """Send what the box sends; nothing: its end."""
        if self._writer is None:
            self._process.stdin.write(forwarder.HEADER.pack(self._number, 0))
            return
        with suppress(ConnectionError):
            if chunk:
                self._writer.write(chunk)
                await self._writer.drain()
            else:
                self.close()

    def close(self) -> None:
        """End it: a client that leaves ends its call."""
        if self._answering is not None:
            self._answering.cancel()
        if self._writer is not None:
            self._writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> None:
        stdin = self._process.stdin
        with suppress(ConnectionError):
            while chunk := await reader.read(forwarder.CHUNK):
                stdin.write(forwarder.HEADER.pack(self._number, len(chunk)) + chunk)
                await stdin.drain()
            stdin.write(forwarder.HEADER.pack(self._number, 0))
