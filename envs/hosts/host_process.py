"""Starts host processes: each under a reaper, with a socket to the worker, and restarted with back-off."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal, TypeAlias

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.infra import KILL_NOW, REAPER_PROGRAM, Backoff, RestartHistory, RestartPolicy
from envs.channel import ChannelClosedError, receive_first, send_blocking
from envs.hosts.protocol import MAX_PACKET_LENGTH, Begin, Ready

Kind: TypeAlias = Literal["agents", "scorers", "fork-server"]
_MAX_FAILED_STARTS = 3
"""Deaths in a row before the process is ready, after which starting fails."""
_END_SECONDS = 1.0
"""Seconds for a process to end by itself after it failed to load its target."""


class HostProcess:
    """A child process that runs user code, under a reaper that kills its descendants."""

    def __init__(self, process: asyncio.subprocess.Process, end: socket.socket, lifeline: int) -> None:
        self.end = end
        """The worker's end of the socket to it."""
        self._process = process
        self._lifeline: int | None = lifeline

    async def wait(self) -> int:
        """Wait until it and all its descendants have ended; return its exit code, negative for a signal."""
        return await self._process.wait()

    def kill(self) -> None:
        """Kill it and its descendants at once."""
        if self._lifeline is not None:
            with suppress(BrokenPipeError):  # it has ended
                os.write(self._lifeline, KILL_NOW)
            os.close(self._lifeline)
            self._lifeline = None

    async def end_within(self, seconds: float) -> None:
        """Wait for it to end after its socket was closed; kill it when it does not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()
        self.kill()
        await self.wait()


async def spawn(kind: Kind, variables: Mapping[str, str]) -> HostProcess:
    """Start a process.

    Args:
        kind: what it serves.
        variables: its whole environment.
    """
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET if kind == "fork-server" else socket.SOCK_STREAM)
    reader, lifeline = os.pipe()
    number = str(theirs.fileno())
    python = [sys.executable, "-P", "-m", "envs.hosts", kind, number]  # -P: the user's folder may have an 'envs' too
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", REAPER_PROGRAM, number, *python),
            env=variables,
            stdin=reader,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C is for the worker, which lets its agents end
        )
    finally:
        theirs.close()
        os.close(reader)
    return HostProcess(process, ours, lifeline)


def describe_exit(exit_code: int) -> str:
    """Return how a process ended, as a clause for errors."""
    if exit_code >= 0:
        return f"it ended with exit status {exit_code}"
    try:
        return f"it was killed by {signal.Signals(-exit_code).name}"
    except ValueError:  # a real-time signal
        return f"it was killed by signal {-exit_code}"


_RESTARTS = RestartPolicy(healthy_seconds=10.0, backoff=Backoff(0.1, 10.0))


class Launcher:
    """Starts processes of one kind, one at a time, with back-off after early deaths.

    Args:
        name: what runs there, for errors.
        kind: what they serve.
        variables: their whole environment.
        begin: their first message.
        start_seconds: longest start.
    """

    def __init__(self, name: str, kind: Kind, variables: Mapping[str, str], begin: Begin, start_seconds: float) -> None:
        self._name = name
        self._kind: Kind = kind
        self._variables = variables
        self._first_message = begin
        self._start_seconds = start_seconds
        self._history = RestartHistory(_RESTARTS)
        self._ready_at = 0.0

    async def launch(self) -> tuple[HostProcess, Ready]:
        """Start a process and wait until it is ready; after early deaths, with a delay.

        Raises: BadInputError: its target does not exist, loads too slowly, or ends the process again and again.
        """
        how = ""
        for _ in range(_MAX_FAILED_STARTS):
            await asyncio.sleep(self._history.delay_seconds)
            spawned = await spawn(self._kind, self._variables)
            try:
                answer = await self._wait_ready(spawned)
            except BaseException:
                spawned.end.close()
                spawned.kill()
                await spawned.wait()
                raise
            if answer is not None:
                return spawned, answer
            spawned.end.close()
            how = describe_exit(await spawned.wait())
            self.record_death()
        raise BadInputError(
            f"{self._name}: its process does not start, {how} {_MAX_FAILED_STARTS} times before it was ready; import it"
            " by hand to see why"
        )

    def record_death(self) -> None:
        """Count the death of a launched process."""
        self._history.record_exit(time.monotonic() - self._ready_at)

    async def _wait_ready(self, spawned: HostProcess) -> Ready | None:  # kept: a try inside a try
        try:
            async with asyncio.timeout(self._start_seconds):
                return await self._begin_load(spawned)
        except TimeoutError as error:
            raise BadInputError(
                f"{self._name}: its process has not loaded it within {self._start_seconds:g} s; import it by hand to"
                " see why, or raise AGENT_LAYER_START_SECONDS"
            ) from error

    async def _begin_load(self, spawned: HostProcess) -> Ready | None:
        """Send what to load and wait for the answer; None: the process died."""
        self._ready_at = time.monotonic()
        try:
            if self._kind == "fork-server":
                spawned.end.send(msgspec.msgpack.encode(self._first_message))
            else:
                send_blocking(spawned.end, self._first_message)
            spawned.end.settimeout(0.0)
            answer = await self._read(spawned)
        except (ConnectionError, ChannelClosedError):
            return None
        if answer.error is not None:
            spawned.end.close()
            await spawned.end_within(_END_SECONDS)  # threads that it started may still run
            raise BadInputError(answer.error)
        self._ready_at = time.monotonic()
        return answer

    async def _read(self, spawned: HostProcess) -> Ready:
        if self._kind != "fork-server":
            return await receive_first(spawned.end, Ready)
        packet = await asyncio.get_running_loop().sock_recv(
            spawned.end, MAX_PACKET_LENGTH
        )  # a message there is a packet
        if not packet:
            raise ChannelClosedError
        return msgspec.msgpack.decode(packet, type=Ready)
