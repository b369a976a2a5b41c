"""This file holds agents that are commands: any program, in any language, that speaks to the model over HTTP.

Above each stands a keeper: when the command has ended, or the worker is gone, it kills whatever the command left.
"""

import asyncio
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from agent_layer.environment import agent_environment
from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.schema.task import Task
from envs.host import keeper
from envs.progress import current_progress
from tracer import Rollout, propagation

__all__ = ["CommandTarget", "variables_of"]

_LONGEST_TAIL = 1 << 16
"""Bytes of output that are kept; the result is in the last line."""
_GRACE_SECONDS = 2.0
"""Between asking a command to end and ending it."""


class CommandTarget:
    """Runs a command for each attempt; its result is its last line of output, read as JSON if it is any."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)

    async def __call__(self, task: Task, rollout: Rollout) -> object:
        """Run the command.

        Raises:
            AgentFailedError: it ended with another status than 0.
            BadInputError: there is no such program.
        """
        process = await self._start(agent_environment() | variables_of(task, rollout))
        current_progress().start()
        reading = asyncio.gather(_tail(process.stdout), _tail(process.stderr))
        try:
            output, errors = await asyncio.shield(reading)  # to the end: a pipe that is full is not seen to close
            status = await process.wait()
        finally:
            await _end(process)
        if status != 0:
            said = errors[-2000:].decode("utf-8", "replace").strip()
            raise AgentFailedError(f"command {self._command[0]!r}: expected exit status 0, found {status}: {said}")
        return _result_of(output)

    async def _start(self, variables: dict[str, str]) -> Process:
        if (program := shutil.which(self._command[0])) is None:
            raise BadInputError(
                f"command {self._command[0]!r}: expected a program that can be started, found none; check its path"
            )
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(Path(keeper.__file__)), "-", program, *self._command[1:]),
            env=variables,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            process_group=0,
        )


def variables_of(task: Task, rollout: Rollout) -> dict[str, str]:
    """Give what the command's environment says of the attempt. Nothing of the grading is in it."""
    view = task.view()
    seen = {"id": view.id, "task_type": view.task_type, "input": view.input, "seed": view.seed}
    return propagation.variables_of(rollout) | {"AGENT_LAYER_TASK": msgspec.json.encode(seen).decode()}


async def _tail(stream: asyncio.StreamReader | None) -> bytes:
    """Read to the end and keep the last bytes."""
    kept = b""
    while stream is not None and (piece := await stream.read(_LONGEST_TAIL)):
        kept = (kept + piece)[-_LONGEST_TAIL:]
    return kept


async def _end(process: Process) -> None:
    """End the command and all that it started."""
    _signal(process, signal.SIGTERM)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await process.wait()
    finally:
        if process.returncode is None and process.stdin is not None:
            process.stdin.write(keeper.AT_ONCE)
    await process.wait()
    _signal(process, signal.SIGKILL)  # where the keeper cannot see what is below it


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _result_of(output: bytes) -> object:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    if not lines:
        return None
    try:
        return msgspec.json.decode(lines[-1])
    except msgspec.DecodeError:
        return lines[-1]
