"""Live processes behind a supervisor: stdio as asyncio's streams, over a connection."""

import asyncio
from contextlib import suppress
from typing import Literal

from agent_layer.errors import SandboxError
from agent_layer.schema.sandbox import ExecResult
from envs.channel import Channel
from envs.sandbox.supervisor.messages import (
    STDIN_WINDOW,
    Cancel,
    FlowControl,
    FromSupervisor,
    Kill,
    Output,
    StdinAck,
    StdinChunk,
)

_KILL_SECONDS = 20.0

_CHUNK_BYTES = 1 << 15
"""Standard input of one message: as short, it needs no room at the supervisor."""


class RemoteProcess:
    """A long process in a box. Contract: ``Process``.

    Args:
        number: of the call that starts it.
        channel: to the supervisor.
        pty: whether it has a terminal.
    """

    def __init__(self, number: int, channel: Channel[FromSupervisor], *, pty: bool) -> None:
        self._number = number
        self._channel = channel
        loop = asyncio.get_running_loop()
        self._has_started: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Task[ExecResult] | None = None
        self.stdout, self.stderr = self._make_reader("stdout"), self._make_reader("stderr")
        if pty:
            self.stderr.feed_eof()
        self._input = _StdinTransport(number, channel)
        protocol = asyncio.streams.FlowControlMixin(loop)
        self._input.set_protocol(protocol)
        self.stdin = asyncio.StreamWriter(self._input, protocol, None, loop)

    async def start(self, ended: asyncio.Task[ExecResult]) -> None:
        """Wait until it runs; raises what prevents it.

        Args:
            ended: its result, as the supervisor reports it.
        """
        self._ended = ended
        await asyncio.wait({ended, self._has_started}, return_when=asyncio.FIRST_COMPLETED)
        if not self._has_started.done():
            await ended

    async def wait(self) -> ExecResult:
        """Wait for its end."""
        assert self._ended is not None
        try:
            return await asyncio.shield(self._ended)
        except SandboxError:
            return ExecResult(status="gone", truncated=True)

    async def kill(self) -> None:
        """Kill it, and return when it has ended."""
        if self._ended is not None and not self._ended.done():
            self._channel.send(Kill(number=self._number))
            await asyncio.wait({self._ended}, timeout=_KILL_SECONDS)

    async def end(self) -> None:
        """Kill it, and forget the output that is left."""
        try:
            if self._has_started.done():
                await self.kill()
        finally:
            self._channel.send(Cancel(number=self._number))
            self.on_gone()
            if self._ended is not None and self._ended.done() and not self._ended.cancelled():
                self._ended.exception()  # it may have had no reader

    def on_message(self, message: Output | StdinAck) -> None:
        """Receive what the supervisor reports."""
        match message:
            case StdinAck(num_bytes=num_bytes):
                if not self._has_started.done():
                    self._has_started.set_result(None)
                self._input.take_ack(num_bytes)
            case Output(stream=stream, chunk=chunk):
                reader = self.stdout if stream == "stdout" else self.stderr
                if reader.at_eof() or not chunk:
                    reader.feed_eof()
                else:
                    reader.feed_data(chunk)

    def on_gone(self) -> None:
        """End its streams: nothing more will come."""
        self.stdout.feed_eof()
        self.stderr.feed_eof()
        self._input.abort()

    def _make_reader(self, stream: Literal["stdout", "stderr"]) -> asyncio.StreamReader:
        reader = asyncio.StreamReader()
        reader.set_transport(_OutputFlow(self._number, stream, self._channel))
        return reader


class _OutputFlow(asyncio.ReadTransport):
    """Stops and goes on with output, as a reader asks for it."""

    def __init__(self, number: int, stream: Literal["stdout", "stderr"], channel: Channel[FromSupervisor]) -> None:
        super().__init__()
        self._number = number
        self._stream: Literal["stdout", "stderr"] = stream
        self._channel = channel

    def pause_reading(self) -> None:
        self._channel.send(FlowControl(number=self._number, stream=self._stream, is_open=False))

    def resume_reading(self) -> None:
        self._channel.send(FlowControl(number=self._number, stream=self._stream, is_open=True))


class _StdinTransport(asyncio.WriteTransport):
    """Sends standard input, never more ahead of the process than the window allows."""

    def __init__(self, number: int, channel: Channel[FromSupervisor]) -> None:
        super().__init__()
        self._number = number
        self._channel = channel
        self._unsent = bytearray()
        self._num_unacked = 0
        self._is_ending = self._is_closed = False
        self._protocol: asyncio.BaseProtocol | None = None
        self._is_paused = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_ending

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_ending:
            self._unsent += data
            self._send()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.close()

    def close(self) -> None:
        self._is_ending = True
        self._send()

    def abort(self) -> None:
        self._is_ending = self._is_closed = True
        self._unsent.clear()
        self._set_paused(to=False)

    def take_ack(self, num_bytes: int) -> None:
        self._num_unacked -= num_bytes
        self._send()

    def _send(self) -> None:
        while self._unsent and self._num_unacked < STDIN_WINDOW:
            chunk = bytes(self._unsent[: min(_CHUNK_BYTES, STDIN_WINDOW - self._num_unacked)])
            del self._unsent[: len(chunk)]
            self._num_unacked += len(chunk)
            self._channel.send(StdinChunk(number=self._number, chunk=chunk))
        if self._is_ending and not self._unsent and not self._is_closed:
            self._is_closed = True
            self._channel.send(StdinChunk(number=self._number))
        self._set_paused(to=bool(self._unsent))

    def _set_paused(self, *, to: bool) -> None:
        if self._is_paused != to and isinstance(self._protocol, asyncio.Protocol | asyncio.streams.FlowControlMixin):
            self._is_paused = to
            with suppress(AssertionError):
                (self._protocol.pause_writing if to else self._protocol.resume_writing)()
