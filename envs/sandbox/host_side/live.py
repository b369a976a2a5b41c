"""Long processes in a box, with live stdio."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import NamedTuple

from agent_layer.errors import SandboxError
from agent_layer.schema.sandbox import ExecResult
from envs.sandbox.host_side.connection import BoxConnection, BoxReply
from envs.sandbox.host_side.outcome import Outcome

MAX_CPU_SECONDS = 7 * 24 * 3600


class ProcessEnds(NamedTuple):
    """What the box of a process does at its end."""

    make_result: Callable[[Outcome], ExecResult]
    kill: Callable[[int, asyncio.Future[BoxReply]], Awaitable[None]]
    """Kills the child of a request, and returns when it has ended."""


class LiveProcess:
    """A long process in a box. Contract: ``Process``.

    Args:
        number: of its request.
        reply: to that.
        ends: what the box does at its end.
    """

    def __init__(self, number: int, reply: asyncio.Future[BoxReply], ends: ProcessEnds) -> None:
        self._ends = ends
        self._number = number
        self._reply = reply
        self._began = time.monotonic()
        self._transports: list[asyncio.BaseTransport] = []
        self.stdin: asyncio.StreamWriter
        self.stdout: asyncio.StreamReader
        self.stderr: asyncio.StreamReader

    @classmethod
    async def start(
        cls, connection: BoxConnection, command: Mapping[str, object], ends: ProcessEnds, *, pty: bool
    ) -> "LiveProcess":
        """Start a command, on a terminal or on pipes.

        Args:
            connection: to the server of the box.
            command: as the server takes it.
            ends: what the box does at its end.
            pty: whether it gets a terminal.
        """
        with ExitStack() as theirs:
            if pty:
                ours, terminal = os.openpty()
                theirs.callback(os.close, terminal)
                given, readers, writer = [terminal] * 3, [ours], os.dup(ours)
            else:
                pipes = [os.pipe() for _ in range(3)]
                given = [pipes[0][0], pipes[1][1], pipes[2][1]]
                for descriptor in given:
                    theirs.callback(os.close, descriptor)
                readers, writer = [pipes[1][0], pipes[2][0]], pipes[0][1]
            process = cls(*connection.request(command, given), ends)
        loop = asyncio.get_running_loop()
        streams = [await process._read_from(loop, reader) for reader in readers]
        process.stdout = streams[0]
        process.stderr = streams[1] if len(streams) > 1 else _ended_stream()
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(writer, "wb", 0)
        )
        process._transports.append(transport)
        process.stdin = asyncio.StreamWriter(transport, protocol, None, loop)
        return process

    async def wait(self) -> ExecResult:
        """Wait for its end."""
        try:
            reply = await asyncio.shield(self._reply)
        except SandboxError:
            reply = None
        outcome = Outcome(reply=reply, seconds=time.monotonic() - self._began)
        return self._ends.make_result(outcome)

    async def kill(self) -> None:
        """Kill it, and return when it has ended."""
        if not self._reply.done():
            await self._ends.kill(self._number, self._reply)

    def close(self) -> None:
        """Close its stdio."""
        for transport in self._transports:
            transport.close()

    async def _read_from(self, loop: asyncio.AbstractEventLoop, descriptor: int) -> asyncio.StreamReader:
        stream = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(stream)
        transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb", 0))
        self._transports.append(transport)
        return stream


def _ended_stream() -> asyncio.StreamReader:
    stream = asyncio.StreamReader()
    stream.feed_eof()
    return stream
