"""Commands ``sandbox``: what this machine can isolate, and code in a fresh box."""

import asyncio
import math
import signal
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from agent_layer.errors import AgentFailedError, BadInputError, SandboxError
from agent_layer.schema.sandbox import ISOLATIONS, ExecResult, Sandbox, SandboxSpec
from agent_layer.settings import Settings, read_sandbox_address
from agent_layer.state import read_taken_sandboxes
from envs.sandbox.kind import SandboxKind, Support
from envs.sandbox.pool import open_pool
from envs.sandbox.registry import list_kind_names, make_kind
from envs.sandbox.supervisor.remote import connect_sandbox

_T = TypeVar("_T")
_MAX_OUTPUT = 64 << 20
_MAX_INPUT = 64 << 20
_OWNER = "command line"
_WEAKEST_THAT_ISOLATES = ISOLATIONS.index("namespace")
_TEXT_WIDTH = 100
_ENDINGS = {
    "timeout": "did not end within {seconds:g} s, and was killed; allow more with --seconds",
    "oom": "took more than {memory_mb} MB of memory, and was killed; make it use less",
    "output_limit": f"wrote more than {_MAX_OUTPUT >> 20} MB, and was killed; make it write into files",
}

Kind = Annotated[str | None, typer.Option(help="Name of a kind; default: the cheapest that isolates.")]
Seconds = Annotated[float, typer.Option(min=0.001, help="Longest run, in seconds.")]


def doctor() -> None:
    """Report which kinds of sandbox work here, what each stops, and why the others do not work."""
    supports = asyncio.run(_probe_all())
    for kind, support in supports:
        typer.echo(f"{'ok' if support.works else 'no':<5}{kind.name:<10} {support.reason}")
        typer.echo(textwrap.fill(kind.stops, _TEXT_WIDTH, initial_indent=" " * 16, subsequent_indent=" " * 16))
    if not any(support.works and _isolates(kind) for kind, support in supports):
        raise SandboxError("sandbox: no kind that isolates works on this machine; the reasons are above")


def diagnose(_: Settings) -> tuple[str, str, str]:
    """Return subject, state and finding for ``agent-layer doctor``."""
    supports = asyncio.run(_probe_all())
    working = [kind.name for kind, support in supports if support.works and _isolates(kind)]
    if working:
        return "sandbox", "ok", f"{', '.join(working)}; 'agent-layer sandbox doctor' tells what each stops"
    return "sandbox", "note", "no kind that isolates works here; 'agent-layer sandbox doctor' tells why"


def run(
    file: Annotated[Path, typer.Argument(help="Python file; the box gets a copy.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Its arguments, behind '--'.")] = None,
    *,
    kind: Kind = None,
    seconds: Seconds = 30.0,
) -> int:
    """Run a Python file in a fresh box; output and exit status are the file's.

    agent-layer sandbox run program.py --seconds 5 -- --its-own-option
    """
    _check_seconds(seconds)
    try:
        code = file.read_bytes()
    except OSError as error:
        raise BadInputError(f"sandbox: {file}: {error.strerror}; name a Python file") from error

    async def run_file(box: Sandbox) -> ExecResult:
        await box.write(file.name, code)
        command = ["python3", file.name, *(arguments or [])]
        return await box.exec(command, stdin=_read_input(), seconds=seconds, max_output=_MAX_OUTPUT)

    return _report(str(file), asyncio.run(_in_fresh_box(kind, run_file)), seconds)


def execute(
    command: Annotated[list[str], typer.Argument(help="Program and arguments, behind '--'.")],
    *,
    kind: Kind = None,
    seconds: Seconds = 30.0,
) -> int:
    """Run a command in a fresh box: sandbox exec -- COMMAND … . Output and exit status are its.

    Inside an attempt that has a sandbox, the command runs in the attempt's own box, where its files stay.

    agent-layer sandbox exec --seconds 5 -- sh -c 'id; ls /'
    """
    _check_seconds(seconds)

    async def run_command(box: Sandbox) -> ExecResult:
        return await box.exec(command, stdin=_read_input(), seconds=seconds, max_output=_MAX_OUTPUT)

    address = read_sandbox_address() if kind is None else None
    running = _in_fresh_box(kind, run_command) if address is None else _in_attempt(address, run_command)
    return _report(command[0], asyncio.run(running), seconds)


def list_boxes() -> None:
    """List the sandboxes that this user's workers have taken on this machine, oldest first."""
    columns = ("task", "role", "kind", "age_seconds", "lease", "box")
    now = time.time()
    rows = [
        (one.task, one.role, one.kind, f"{now - one.taken_at:.0f}", one.owner, one.box)
        for one in read_taken_sandboxes()
    ]
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


execute_app = typer.Typer(add_completion=False)
execute_app.command(context_settings={"allow_interspersed_args": False})(execute)  # options behind it are its own


def _check_seconds(seconds: float) -> None:
    if not math.isfinite(seconds):
        raise BadInputError(f"sandbox: expected --seconds to be a number of seconds, found {seconds}; give one")


async def _in_fresh_box(kind: str | None, use: Callable[[Sandbox], Awaitable[_T]]) -> _T:
    kinds = None if kind is None else [make_kind(kind)]
    async with open_pool(kinds=kinds) as pool:
        return await use(await pool.take(SandboxSpec(kind=kind), owner=_OWNER))


async def _in_attempt(address: str, use: Callable[[Sandbox], Awaitable[_T]]) -> _T:
    async with connect_sandbox(address) as connection:
        return await use(connection.box)


async def _probe_all() -> list[tuple[SandboxKind, Support]]:
    found: list[tuple[SandboxKind, Support]] = []
    for name in list_kind_names():
        kind = make_kind(name)
        try:
            found.append((kind, await kind.probe()))
        finally:
            await kind.close()
    return found


def _isolates(kind: SandboxKind) -> bool:
    return ISOLATIONS.index(kind.isolation) >= _WEAKEST_THAT_ISOLATES


def _read_input() -> bytes:
    """Return what is piped in; at a terminal nothing."""
    return b"" if sys.stdin.isatty() else sys.stdin.buffer.read(_MAX_INPUT)


def _report(name: str, result: ExecResult, seconds: float) -> int:
    """Write the output, and return the exit status.

    Raises:
        AgentFailedError: the sandbox killed it.
        SandboxError: the box was lost.
    """
    sys.stdout.buffer.write(result.stdout)
    sys.stdout.buffer.flush()
    sys.stderr.buffer.write(result.stderr)
    sys.stderr.buffer.flush()
    if result.status == "gone":
        raise SandboxError(f"sandbox: the box of {name} was lost; run it again")
    if result.status in _ENDINGS:
        memory_mb = SandboxSpec().resources.memory_mb
        ending = _ENDINGS[result.status].format(seconds=seconds, memory_mb=memory_mb)
        raise AgentFailedError(f"sandbox: {name} {ending}")
    if result.signal is not None:
        raise AgentFailedError(f"sandbox: {name} was killed by {signal.Signals(result.signal).name}")
    return result.exit_code or 0
