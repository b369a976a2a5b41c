"""Live processes of clients: the supervisor's end, which passes their stdio on."""

import asyncio
from contextlib import suppress
from typing import Literal

from agent_layer.schema.sandbox import ExecResult, Process
from envs.channel import Channel
from envs.sandbox.supervisor.messages import STDIN_WINDOW, FlowControl, Output, StdinAck, StdinChunk, ToSupervisor

_CHUNK = 1 << 16


class LiveStdio:
    """Passes the stdio of a process on, as fast as the client reads and the process does.

    Args:
        process: the process.
        number: of the call that started it.
        channel: to the client.
    """

    def __init__(self, process: Process, number: int, channel: Channel[ToSupervisor]) -> None:
        self._process = process
        self._number = number
        self._channel = channel
        self._input: asyncio.Queue[bytes] = asyncio.Queue()
        self._num_unacked = 0
        self._valves = {"stdout": asyncio.Event(), "stderr": asyncio.Event()}
        for valve in self._valves.values():
            valve.set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start to pass it on."""
        self._tasks = [
            asyncio.create_task(self._feed()),
            asyncio.create_task(self._pump(self._process.stdout, "stdout")),
            asyncio.create_task(self._pump(self._process.stderr, "stderr")),
        ]
        self._channel.send(StdinAck(number=self._number))

    async def wait(self) -> ExecResult:
        """Wait for the end of the process."""
        return await self._process.wait()

    async def wait_for_output(self) -> None:
        """Wait until all output has been passed on."""
        await asyncio.wait(self._tasks[1:])

    async def kill(self) -> None:
        """Kill the process."""
        await self._process.kill()

    def take_stdin(self, feed: StdinChunk) -> None:
        """Pass on standard input.

        Raises: ValueError: the client sends more than it may.
        """
        self._num_unacked += len(feed.chunk)
        if self._num_unacked > STDIN_WINDOW:
            raise ValueError("more standard input than the window allows")
        self._input.put_nowait(feed.chunk)

    def take_flow_control(self, valve: FlowControl) -> None:
        """Stop passing on output, or go on."""
        event = self._valves[valve.stream]
        if valve.is_open:
            event.set()
        else:
            event.clear()

    async def stop(self) -> None:
        """Stop passing anything on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _feed(self) -> None:
        with suppress(ConnectionError):  # the process does not read it
            while chunk := await self._input.get():
                self._process.stdin.write(chunk)
                await self._process.stdin.drain()
                self._num_unacked -= len(chunk)
                self._channel.send(StdinAck(number=self._number, num_bytes=len(chunk)))
        self._process.stdin.close()

    async def _pump(self, source: asyncio.StreamReader, stream: Literal["stdout", "stderr"]) -> None:
        with suppress(OSError):  # a terminal whose other end was closed
            while chunk := await source.read(_CHUNK):
                await self._valves[stream].wait()
                self._channel.send(Output(number=self._number, stream=stream, chunk=chunk))
                await self._channel.drain()
        self._channel.send(Output(number=self._number, stream=stream))
