"""This file holds how a worker starts a process of users' code: under a keeper, with a socket between the two."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from envs.host import keeper

__all__ = ["Kind", "Spawned", "describe_death", "spawn"]

Kind: TypeAlias = Literal["agents", "scorers", "zygote"]


class Spawned:
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
                os.write(self._lifeline, keeper.AT_ONCE)
            os.close(self._lifeline)
            self._lifeline = None

    async def end_within(self, seconds: float) -> None:
        """Let it end by itself, after its socket was closed; kill it when it does not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()
        self.kill()
        await self.wait()


async def spawn(kind: Kind, variables: Mapping[str, str]) -> Spawned:
    """Start a process.

    Args:
        kind: what it is to do.
        variables: the whole of its environment.
    """
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET if kind == "zygote" else socket.SOCK_STREAM)
    reader, lifeline = os.pipe()
    number = str(theirs.fileno())
    python = [sys.executable, "-P", "-m", "envs.host", kind, number]  # -P: the user's folder may have an 'envs' too
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(Path(keeper.__file__)), number, *python),
            env=variables,
            stdin=reader,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C is for the worker, who lets its agents end
        )
    finally:
        theirs.close()
        os.close(reader)
    return Spawned(process, ours, lifeline)


def describe_death(exit_code: int) -> str:
    """Say how a process ended."""
    if exit_code >= 0:
        return f"it ended with exit status {exit_code}"
    try:
        return f"it was killed by {signal.Signals(-exit_code).name}"
    except ValueError:  # a real-time signal
        return f"it was killed by signal {-exit_code}"
