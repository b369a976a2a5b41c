"""Way from a box to its gateway: a loopback port inside, whose connections end at one address outside.

The box has no network. A program in it (``forwarder``) carries the connections over its standard streams, so that any
kind of box will do, and nothing of the host becomes visible inside.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from agent_layer.errors import AgentFailedError, SandboxError
from agent_layer.schema.sandbox import Sandbox
from envs.commands import forwarder

_PORT: Final = 47113
"""Port in the box that programs there are unlikely to use."""
_PROGRAM: Final = Path(forwarder.__file__)
_OPEN_SECONDS: Final = 60.0
_AGAIN_SECONDS: Final = 0.1
"""Before the forwarder is started again that a command of the box has killed."""


@asynccontextmanager
async def open_tunnel(box: Sandbox, url: str, port: int = _PORT) -> AsyncGenerator[str]:
    """Forward a port of the box to the server of this address, during the block; return the address in the box.

    Args:
        box: it has no other network.
        url: of the server.
        port: in the box.

    Raises:
        AgentFailedError: the box has no python3.
        SandboxError: the box was lost, or is too slow.
    """
    tunnel = _Tunnel(box, url, port)
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
        yield f"http://127.0.0.1:{port}{urlsplit(url).path}"
    finally:
        running.cancel()
        await asyncio.wait({running})


class _Tunnel:
    def __init__(self, box: Sandbox, url: str, port: int) -> None:
        parts = urlsplit(url)
        self._box = box
        self._inside = port
        self._host = parts.hostname or ""
        self._is_secure = parts.scheme == "https"
        self._port = parts.port or (443 if self._is_secure else 80)
        self.is_open = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled; a forwarder that a command of the box kills is started again."""
        command = ["python3", "-I", "-c", _PROGRAM.read_text(encoding="utf-8"), str(self._inside)]
        while True:
            async with self._box.open(command, cwd="/", is_service=True) as process:
                carrier = forwarder.Carrier(process.stdout, process.stdin, self._connect, self.is_open.set)
                await carrier.run()
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

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context() if self._is_secure else None
        return await asyncio.open_connection(self._host, self._port, ssl=context)
