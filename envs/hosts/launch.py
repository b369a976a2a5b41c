"""This file holds how a process of users' code is brought up: told what to load, waited for, started again in time.

This file holds how a worker starts a process of users' code: under a keeper, with a socket between the two.
"""

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
from agent_layer.infra.processes import KILL_NOW, REAPER_PROGRAM
from envs.hosts.channel import hear_first, say
from envs.hosts.protocol import LONGEST_PACKET, Begin, Ready

Kind: TypeAlias = Literal["agents", "scorers", "zygote"]


class HostProcess:
    """A process of users' code, as the worker holds it."""

    def __init__(self, process: asyncio.subprocess.Process, end: socket.socket, lifeline: int) -> None:
        self.end = end
        """Socket that leads there."""
        self._process = process
        self._lifeline: int | None = lifeline

    async def wait(self) -> int:
        """Wait until it has ended and nothing is left of it; give its exit code, negative for a signal."""
        return await self._process.wait()

    def kill(self) -> None:
        """End it at once, and all that it started."""
        if self._lifeline is not None:
            with suppress(BrokenPipeError):  # it has ended
                os.write(self._lifeline, KILL_NOW)
            os.close(self._lifeline)
            self._lifeline = None

    async def end_within(self, seconds: float) -> None:
        """Let it end by itself, after its socket was closed; kill it when it does not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()
        self.kill()
        await self.wait()


async def spawn(kind: Kind, variables: Mapping[str, str]) -> HostProcess:
    """Start a process.

    Args:
        kind: what it is to do.
        variables: the whole of its environment.
    """
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET if kind == "zygote" else socket.SOCK_STREAM)
    reader, lifeline = os.pipe()
    number = str(theirs.fileno())
    python = [sys.executable, "-P", "-m", "envs.hosts", kind, number]  # -P: the user's folder may have an 'envs' too
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", REAPER_PROGRAM, number, *python),
            env=variables,
            stdin=reader,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C is for the worker, who lets its agents end
        )
    finally:
        theirs.close()
        os.close(reader)
    return HostProcess(process, ours, lifeline)


def describe_exit(exit_code: int) -> str:
    """Say how a process ended."""
    if exit_code >= 0:
        return f"it ended with exit status {exit_code}"
    try:
        return f"it was killed by {signal.Signals(-exit_code).name}"
    except ValueError:  # a real-time signal
        return f"it was killed by signal {-exit_code}"


_MOST_DEATHS = 3
"""So often in a row a process may die before it is ready."""
_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS = 0.1, 10.0
"""Before a process is started again that died young; doubled each time in a row."""
_YOUNG_SECONDS = 10.0
_END_SECONDS = 1.0
"""For a process to end by itself that has said that it cannot load what it is to."""


class Launcher:
    """Starts processes of one kind, one at a time.

    Args:
        name: what runs there, for errors.
        kind: what they are to do.
        variables: the whole of their environment.
        begin: what they are told first.
        start_seconds: longest start.
    """

    def __init__(self, name: str, kind: Kind, variables: Mapping[str, str], begin: Begin, start_seconds: float) -> None:
        self._name = name
        self._kind: Kind = kind
        self._variables = variables
        self._begin = begin
        self._start_seconds = start_seconds
        self._num_young_deaths = 0
        self._ready_at = 0.0

    async def launch(self) -> tuple[HostProcess, Ready]:
        """Start a process and wait until it is ready; after deaths, not at once.

        Raises: BadInputError: what it is to load is not there, takes too long, or ends the process again and again.
        """
        how = ""
        for _ in range(_MOST_DEATHS):
            await asyncio.sleep(self._delay_seconds)
            spawned = await spawn(self._kind, self._variables)
            try:
                answer = await self._answer(spawned)
            except BaseException:
                spawned.end.close()
                spawned.kill()
                raise
            if answer is not None:
                return spawned, answer
            spawned.end.close()
            how = describe_exit(await spawned.wait())
            self.note_death()
        raise BadInputError(
            f"{self._name}: expected its process to load it, but {how} {_MOST_DEATHS} times before it was ready;"
            " import it by hand to see why"
        )

    def note_death(self) -> None:
        """A process that was launched has died unasked."""
        is_young = time.monotonic() < self._ready_at + _YOUNG_SECONDS
        self._num_young_deaths = self._num_young_deaths + 1 if is_young else 0

    @property
    def _delay_seconds(self) -> float:
        if not self._num_young_deaths:
            return 0.0
        return min(_LONGEST_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2 ** (self._num_young_deaths - 1))

    async def _answer(self, spawned: HostProcess) -> Ready | None:
        try:
            async with asyncio.timeout(self._start_seconds):
                return await self._ask(spawned)
        except TimeoutError as error:
            raise BadInputError(
                f"{self._name}: expected its process to load it within {self._start_seconds:g} s, found it still"
                " loading; import it by hand to see why, or raise AGENT_LAYER_START_SECONDS"
            ) from error

    async def _ask(self, spawned: HostProcess) -> Ready | None:
        """Tell it what to load; None: it died of that."""
        self._ready_at = time.monotonic()
        try:
            if self._kind == "zygote":
                spawned.end.send(msgspec.msgpack.encode(self._begin))
            else:
                say(spawned.end, self._begin)
            spawned.end.settimeout(0.0)
            answer = await self._read(spawned)
        except (ConnectionError, EOFError):
            return None
        if answer.error is not None:
            spawned.end.close()
            await spawned.end_within(_END_SECONDS)  # threads that it began go on
            raise BadInputError(answer.error)
        self._ready_at = time.monotonic()
        return answer

    async def _read(self, spawned: HostProcess) -> Ready:
        if self._kind != "zygote":
            return await hear_first(spawned.end, Ready)
        packet = await asyncio.get_running_loop().sock_recv(spawned.end, LONGEST_PACKET)  # a message there is a packet
        if not packet:
            raise EOFError
        return msgspec.msgpack.decode(packet, type=Ready)
