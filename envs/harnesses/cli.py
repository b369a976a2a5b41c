"""Commands ``harnesses``: which coding agents there are, and their installation."""

from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from agent_layer.errors import BadInputError
from agent_layer.settings import Settings
from envs.harnesses.harness import Harness
from envs.harnesses.install import Installation
from envs.harnesses.qualified import find_failure, find_qualification
from envs.harnesses.registry import find_harness, list_harness_names


def list_harnesses(context: typer.Context) -> None:
    """List coding agents with their pinned version, whether it is installed, and when it was qualified.

    agent-layer harnesses
    """
    if context.invoked_subcommand is not None:
        return
    settings: Settings = context.obj
    table = Table(box=None, pad_edge=False)
    for column in ("name", "version", "from", "dialect", "installed", "qualified"):
        table.add_column(column, no_wrap=True)
    for name in list_harness_names():
        harness = find_harness(name)
        installation = Installation(settings, harness)
        installed = "no" if installation.find_fault() else str(installation.interpreter)
        table.add_row(
            name, harness.version, harness.installer, harness.dialect, installed, _describe_check(settings, harness)
        )
    Console().print(table)
    for need in _list_needs({name: Installation(settings, find_harness(name)) for name in list_harness_names()}):
        typer.echo(need, err=True)


def install(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="See 'agent-layer harnesses'.")] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="All that are listed.")] = False,
) -> None:
    """Install coding agents at their pinned versions, from locks with hashes, into the directory.

    npm packages need node on PATH; PyPI packages get a virtual environment of their own.

    agent-layer harnesses install claude-code mini-swe-agent
    """
    if all_ == bool(names):
        raise BadInputError("harnesses: expected names or --all, found both or neither; see 'agent-layer harnesses'")
    for harness in [find_harness(name) for name in names or list_harness_names()]:
        installation = Installation(context.obj, harness)
        if installation.find_fault() is None:
            typer.echo(f"{harness.name}: {harness.version} is installed already")
            continue
        installation.install(partial(typer.echo, err=True))
        typer.echo(f"{harness.name}: installed {harness.version} with {installation.interpreter}")


def diagnose(settings: Settings) -> tuple[str, str, str]:
    """Return subject, state and finding for ``agent-layer doctor``."""
    found = {name: Installation(settings, find_harness(name)) for name in list_harness_names()}
    begun = {name: one for name, one in found.items() if one.folder.exists()}
    faults = [f"{name} {fault}" for name, one in begun.items() if (fault := one.find_fault())]
    if faults:
        return "harnesses", "bad", "; ".join(faults)
    needs = _list_needs({name: one for name, one in found.items() if name not in begun})
    if not begun:
        return "harnesses", "note", "; ".join(["none is installed; 'agent-layer harnesses' lists them", *needs])
    return "harnesses", "ok", "; ".join([", ".join(begun), *needs])


def _list_needs(installations: dict[str, Installation]) -> list[str]:
    """Return a sentence for each thing that this machine lacks, with the harnesses that need it."""
    lacking = dict[str, list[str]]()
    for name, installation in installations.items():
        if missing := installation.find_missing():
            lacking.setdefault(missing, []).append(name)
    return [f"{', '.join(names)}: this machine lacks {missing}" for missing, names in lacking.items()]


def _describe_check(settings: Settings, harness: Harness) -> str:
    found = {"": find_qualification(settings, harness.name), "failed ": find_failure(settings, harness.name)}
    return (
        ", ".join(
            f"{mark}{one.checked_on}" + ("" if one.version == harness.version else f" as {one.version}")
            for mark, one in found.items()
            if one is not None
        )
        or "-"
    )
