"""Serving of an in-process engine: on the running loop, or from its own thread."""

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol, TypeVar

from aiohttp import web

from agent_layer.errors import UnreachableError

_START_SECONDS = 60.0
_TURNS = 10


class _Application(Protocol):
    url: str

    def app(self) -> web.Application: ...


S = TypeVar("S", bound=_Application)


@asynccontextmanager
async def serve(engine: S, host: str = "127.0.0.1", port: int = 0) -> AsyncGenerator[S]:
    """Serve the engine on the running loop; port 0 means a free port. ``engine.url`` is its address."""
    runner = web.AppRunner(engine.app(), access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    with socket.create_server((host, port)) as listener:
        await runner.setup()
        try:
            await web.SockSite(runner, listener).start()
            engine.url = f"http://{host}:{listener.getsockname()[1]}"
            yield engine
        finally:
            # asyncio would leave a connection open that it accepts in the moment in which it closes the listener.
            asyncio.get_running_loop().remove_reader(listener)
            await _settle()
            await runner.cleanup()
            await _settle()


async def _settle() -> None:
    """Let the loop open or close the connections that it has begun to, which takes it a few turns."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


@contextmanager
def serve_in_thread(engine: S, port: int = 0) -> Generator[S]:
    """Serve the engine from its own thread, for callers without a loop.

    Raises: UnreachableError: it does not start to serve in time.
    """
    ready, stop, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()

    async def live() -> None:
        async with serve(engine, port=port):
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(live()), name="scripted-engine", daemon=True)
    thread.start()
    try:
        if not ready.wait(_START_SECONDS):
            raise UnreachableError(
                f"engine on port {port}: expected it to be served within {_START_SECONDS:.0f} s, found it is not; see"
                " the error that its thread printed"
            )
        yield engine
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_START_SECONDS)
        loop.close()
