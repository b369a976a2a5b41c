"""Checks of values, run in a child process with a time limit: a policy chooses the values, so it can make a check slow.

The scorer's process judges many attempts in one loop, and a check that never ends there would end all of them.
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias, cast

import msgspec

from agent_layer.errors import AgentFailedError, BadInputError
from envs.failures import describe_error
from envs.grading.plain import read_value
from envs.registry import find_object

Check: TypeAlias = Callable[[Sequence[object], object], object]
"""Takes the arguments of a call and its value, as plain Python values; returns whether the value will do."""

_PROGRAM: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.stdin.buffer.readline());"
    " from envs.grading.checks import answer_checks; answer_checks()"
)
_LOAD_SECONDS: Final = 120.0
"""Longest import of the checks' modules, which no policy can slow down."""
_MAX_SHOWN_LENGTH: Final = 200


class ClaimedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed value to check."""

    check: str
    """``module:function``."""
    args: list[object]
    """Arguments of the call, as a grading has them."""
    value: object
    """Value as judged code claimed it."""


async def run_checks(claims: Sequence[ClaimedValue], *, check_seconds: float, seconds: float) -> list[str | None]:
    """Return why each value will not do, in order; None: it will.

    Args:
        claims: values and their checks.
        check_seconds: longest check; the first that is longer, or ends its process, is the last, and those after it
            fail.
        seconds: longest time of all.

    Raises:
        BadInputError: a check cannot be imported.
        AgentFailedError: the checks' process ended, or was too slow, before it had imported them.
    """
    if not claims:
        return []
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _PROGRAM, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    sending = asyncio.create_task(_send(process, claims))
    try:
        await _await_loaded(process)
        return await _read_answers(process, len(claims), check_seconds, seconds)
    finally:
        sending.cancel()
        with suppress(ProcessLookupError):
            process.kill()
        process.stdin.close()
        await process.wait()


async def _send(process: Process, claims: Sequence[ClaimedValue]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(sys.path).encode() + b"\n" + msgspec.json.encode(claims))
    with suppress(OSError):  # it ended
        await process.stdin.drain()
    process.stdin.close()


async def _await_loaded(process: Process) -> None:
    try:
        async with asyncio.timeout(_LOAD_SECONDS):
            line = await _read_line(process)
    except TimeoutError as error:
        raise AgentFailedError(f"checks: they were not imported within {_LOAD_SECONDS:g} s") from error
    if line is None:
        raise AgentFailedError("checks: their process ended while it imported them; import their module by itself")
    if line["error"] is not None:
        raise BadInputError(str(line["error"]))


async def _read_answers(process: Process, number: int, check_seconds: float, seconds: float) -> list[str | None]:
    loop, whys = asyncio.get_running_loop(), list[str | None]()
    end, why = loop.time() + seconds, "an earlier check was the last"
    while len(whys) < number:
        try:
            async with asyncio.timeout_at(min(end, loop.time() + check_seconds)):
                line = await _read_line(process)
        except TimeoutError:
            why = "the check took too long"
            break
        if line is None:
            why = "the check ended its process"
            break
        whys.append(cast("str | None", line["error"]))
    missing = number - len(whys)
    return [*whys, *[why][:missing], *["an earlier check was the last"] * (missing - 1)]


async def _read_line(process: Process) -> dict[str, object] | None:
    assert process.stdout is not None
    line = await process.stdout.readline()
    return msgspec.json.decode(line, type=dict[str, object]) if line.endswith(b"\n") else None


def answer_checks() -> None:
    """Check what standard input has, in the child process; write a line when all are imported, and one for each."""
    claims = msgspec.json.decode(sys.stdin.buffer.read(), type=list[ClaimedValue])
    output, quiet = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # what a check prints is its own affair
        os.dup2(quiet, descriptor)
    try:
        checks = [cast("Check", find_object(one.check, "scorer")) for one in claims]
    except BadInputError as error:
        _write(output, str(error))
        return
    _write(output, None)
    for one, check in zip(claims, checks, strict=True):
        _write(output, _find_fault(one, check))


def _find_fault(claim: ClaimedValue, check: Check) -> str | None:
    try:
        holds = check(cast("list[object]", read_value(claim.args)), read_value(claim.value)) is True
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a check may stumble over any value, which then will not do
        return f"the check raised {describe_error(error)}"[:_MAX_SHOWN_LENGTH]
    return None if holds else "the check did not hold"


def _write(output: int, error: str | None) -> None:
    os.write(output, msgspec.json.encode({"error": error}) + b"\n")
