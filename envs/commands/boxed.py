"""A command in a box whose only way out is its own gateway."""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from agent_layer.errors import BadInputError, SandboxError
from agent_layer.schema.sandbox import ISOLATIONS, ExecResult, Resources, Sandbox, SandboxSpec, Snapshot
from envs.commands.directories import home_variables
from envs.commands.left_files import pack_tree
from envs.commands.plan import CommandEnd, CommandOptions, CommandPlan
from envs.commands.process import read_tail
from envs.failures import EndedError, Ending
from envs.progress import current_progress
from envs.sandbox import list_kind_names, make_kind

BOX_HOME: Final = "/tmp/home"
BOX_RESOURCES: Final = Resources(cpus=2.0, memory_mb=4096, disk_mb=2048, processes=512, files=100_000, open_files=4096)
"""What programs such as coding agents need, which is more than snippets of code do."""
_BEST_KINDS: Final = ("session", "oci", "docker", "namespace")
"""Kinds for long episodes, in the order in which they are tried; those of packages come last."""
_RUNTIME: Final = "/tmp/run"
_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_COPY_SECONDS: Final = 120.0
_SENT: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM)
"""Signals that another process sent; a program that crashes dies of others."""


def list_box_kinds() -> list[str]:
    """Return the kinds of sandbox that have a network of their own, the best first."""
    return [*_BEST_KINDS, *(name for name in list_kind_names() if name not in ("process", *_BEST_KINDS))]


def choose_box(options: CommandOptions) -> CommandOptions:
    """Return the options with the best kind of sandbox that works on this machine, where they ask for any.

    Raises: BadInputError: none does.
    """
    box = options.box
    if box is None or box.kind is not None:
        return options
    with ThreadPoolExecutor(1) as pool:  # a caller's loop may run in this thread
        kind = pool.submit(asyncio.run, _find_kind()).result()
    return msgspec.structs.replace(options, box=msgspec.structs.replace(box, kind=kind))


async def _find_kind() -> str:
    reasons: list[str] = []
    for name in list_box_kinds():
        kind = make_kind(name)
        if ISOLATIONS.index(kind.isolation) < ISOLATIONS.index("namespace"):
            continue
        try:
            support = await kind.probe()
        finally:
            await kind.close()
        if support.works:
            return name
        reasons.append(f"{name}: {support.reason}")
    raise BadInputError(
        f"sandbox: expected a kind that works on this machine, found none: {'; '.join(reasons)}. Install what one of"
        " them needs, or add --box none: the agent, and what the model writes, then has the rights of this user"
    )


def box_variables(spec: SandboxSpec) -> dict[str, str]:
    """Return the variables of a command in a box, beside those of the box itself."""
    programs = [f"{place}/bin" for place in spec.mounts if Path(place, "bin").is_dir()]
    return {
        "PATH": ":".join([*programs, _PATH]),
        "HOME": BOX_HOME,
        "PWD": spec.workdir,
        "XDG_RUNTIME_DIR": _RUNTIME,
        **home_variables(BOX_HOME),
    }


async def fill_box(
    box: Sandbox, *, work: Path | None, home: Path | None, files: Mapping[str, str], plan: CommandPlan
) -> None:
    """Write the files of an attempt into its box.

    Args:
        box: it has the task's own files already.
        work: template of the working directory.
        home: template of HOME.
        files: the task's own, which win over the template's.
        plan: adds its files to both.

    Raises: BadInputError: a file has no place. SandboxError: the box was lost.
    """
    if work is not None:
        await box.restore(Snapshot(archive=pack_tree(work)))
    await _run(box, ["mkdir", "-p", "-m", "700", BOX_HOME, _RUNTIME])
    if home is not None:
        await _run(box, ["tar", "-x", "-C", BOX_HOME], pack_tree(home))
    places = {path: text for path, text in files.items() if work is not None and not path.startswith("/")}
    for path, text in {**places, **plan.files}.items():
        await _write(box, path, text, box.spec.workdir)
    for path, text in plan.home_files.items():
        await _write(box, path, text, BOX_HOME)


async def run_in_box(box: Sandbox, plan: CommandPlan, *, name: str, env: Mapping[str, str]) -> CommandEnd:
    """Run a command in a box to its end.

    Raises:
        EndedError: it took more memory than the box has, or a process of the box ended it: as its policy would have it.
        SandboxError: the box was lost.
    """
    argv = [*plan.argv]
    if plan.stdin:
        await _write(box, "stdin", plan.stdin, _RUNTIME)
        argv = ["/bin/sh", "-c", 'exec "$@" <"$0"', f"{_RUNTIME}/stdin", *argv]
    async with box.open(argv, env=env) as process:
        current_progress().mark_prepared()
        process.stdin.close()
        output, errors = await read_tail(process.stdout), await read_tail(process.stderr)
        ended = await process.wait()
    _check_end(box, name, ended)
    return CommandEnd(
        name=name,
        exit_code=ended.exit_code,
        signal=ended.signal,
        stdout=output.decode("utf-8", "replace"),
        stderr=errors.decode("utf-8", "replace"),
    )


def _check_end(box: Sandbox, name: str, ended: ExecResult) -> None:
    """Raise how an attempt ended whose command the box, or a process in it, has ended."""
    match ended.status:
        case "gone":
            raise SandboxError(f"sandbox {box.id}: the box was lost while command {name!r} ran in it")
        case "oom":
            why = f"it took more than the {box.spec.resources.memory_mb} MB of its sandbox"
        case "signalled" if ended.signal in _SENT:
            why = f"a process of its own sandbox ended it by {signal.Signals(ended.signal).name}"
        case "timeout":
            why = "it took more CPU time than its sandbox allows"
        case _:
            return
    raise EndedError(Ending(status="truncated", cause="policy", error=f"command {name!r}: {why}"))


async def _write(box: Sandbox, path: str, text: str, top: str) -> None:
    if path.startswith("/") or ".." in path.split("/"):
        raise BadInputError(f"file {path!r} would lie outside {top}; write a path below it, without '..'")
    try:
        await box.write(f"{top}/{path}", text.encode())
    except OSError as error:
        raise BadInputError(
            f"file {path!r} cannot be written to {top} in the sandbox, {error.strerror}; choose another path, or raise"
            " the sandbox's limits"
        ) from error


async def _run(box: Sandbox, command: Sequence[str], stdin: bytes = b"") -> None:
    done = await box.exec(command, stdin=stdin, cwd="/", seconds=_COPY_SECONDS)
    if done.exit_code != 0:
        raise SandboxError(
            f"sandbox {box.id}: {command[0]} fails, {done.stderr.decode(errors='replace').strip() or done.status};"
            " raise the sandbox's limits, or give it fewer files"
        )
