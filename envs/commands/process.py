"""A command as a process of this machine, below a reaper: no descendant outlives it.

The reaper kills all that the command leaves behind, daemons in sessions of their own included, when the command has
ended or the worker is gone. Where a command kills its reaper, its processes are found by their own TMPDIR.
"""

import asyncio
import errno
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from agent_layer.errors import BadInputError, SandboxError
from agent_layer.infra import KILL_NOW, REAPER_PROGRAM, kill_marked
from envs.commands.plan import CommandEnd
from envs.progress import current_progress

MAX_TAIL_LENGTH = 1 << 16
"""Bytes of output to keep; the result is in the last line."""
_GRACE_SECONDS = 2.0
"""Time between SIGTERM and SIGKILL for a command, and for its output to be read once it has ended."""
_MAX_WORD_KIB = 128
"""Linux's MAX_ARG_STRLEN."""
_FROM_FILE = ("/bin/sh", "-c", 'exec "$@" <"$0"')
"""Runs what follows with a file as its standard input: the reaper's own is its lifeline."""


async def run_process(
    argv: Sequence[str],
    *,
    name: str,
    env: Mapping[str, str],
    cwd: Path | None,
    stdin: Path | None,
    mark: Path | None,
) -> CommandEnd:
    """Run a command to its end; when this is cancelled, it and its descendants have ended.

    Args:
        argv: absolute path of a program, and arguments.
        name: of the command, for errors.
        env: its whole environment.
        cwd: None: this process's own.
        stdin: file that it reads; None: it reads nothing.
        mark: its TMPDIR, if nothing else has the same.

    Raises:
        BadInputError: arguments or variables cannot be those of a process.
        SandboxError: the machine has no room for another process.
    """
    reading = [] if stdin is None else [*_FROM_FILE, str(stdin)]
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", REAPER_PROGRAM, "-", *reading, *argv),
            env=env,
            cwd=cwd,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            process_group=0,
        )
    except ValueError as error:  # a NUL, or half a surrogate pair
        raise BadInputError(
            f"command {name!r}: expected text as its arguments and variables, found {error}; correct the task's input"
        ) from error
    except OSError as error:
        if error.errno == errno.E2BIG:
            raise BadInputError(
                f"command {name!r}: its task is longer than the {_MAX_WORD_KIB} KiB that an argument or a variable of a"
                " process may have; put the long part into the task's files"
            ) from error
        raise SandboxError(f"command {name!r} cannot be started, {error}; run fewer slots on this machine") from error
    current_progress().mark_prepared()
    tails = asyncio.gather(read_tail(process.stdout), read_tail(process.stderr))
    exiting = asyncio.create_task(_wait_exit(process.pid))
    try:
        await asyncio.wait({tails, exiting}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({tails}, timeout=_GRACE_SECONDS if exiting.done() else None)
        is_killed = not tails.done() or await process.wait() == -signal.SIGKILL
        if mark is not None and is_killed:  # the command may have killed the reaper
            await asyncio.to_thread(kill_marked, "TMPDIR", str(mark))
        output, errors = await asyncio.shield(tails)  # to the end: a full pipe hides that it is closed
        status = await process.wait()
    finally:
        exiting.cancel()
        await asyncio.wait({exiting})
        await _end(process)
    return CommandEnd(
        name=name,
        exit_code=status if status >= 0 else None,
        signal=-status if status < 0 else None,
        stdout=output.decode("utf-8", "replace"),
        stderr=errors.decode("utf-8", "replace"),
    )


async def read_tail(stream: asyncio.StreamReader | None) -> bytes:
    """Read to the end and keep the last bytes."""
    kept = b""
    while stream is not None and (piece := await stream.read(MAX_TAIL_LENGTH)):
        kept = (kept + piece)[-MAX_TAIL_LENGTH:]
    return kept


async def _wait_exit(pid: int) -> None:
    """Wait for the end of a child; another process may hold its output open."""
    loop = asyncio.get_running_loop()
    has_ended: asyncio.Future[None] = loop.create_future()
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop.add_reader(descriptor, lambda: None if has_ended.done() else has_ended.set_result(None))
    try:
        await has_ended
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _end(process: Process) -> None:
    """End the command and its descendants."""
    _signal(process, signal.SIGTERM)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await process.wait()
    finally:
        if process.returncode is None and process.stdin is not None:
            process.stdin.write(KILL_NOW)
    await process.wait()
    _signal(process, signal.SIGKILL)  # where the reaper cannot see its descendants


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
