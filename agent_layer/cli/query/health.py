"""Command about the health of training runs: ``health``."""

from typing import Annotated

import msgspec
import typer
from rich.table import Table

from agent_layer.cli.ui import Format, Run, draw_table, print_link, write_lines
from agent_layer.errors import NotFoundError
from agent_layer.health import STEP_CHECKS, StepCheck, progress_path, read_progress
from agent_layer.settings import Settings


def health(
    context: typer.Context,
    *,
    run: Run = None,
    catalogue: Annotated[
        bool, typer.Option("--catalogue", help="List what is looked at, with the limits that hold by default.")
    ] = False,
    format_: Format = "table",
) -> None:
    """Show what was wrong with the last step of a training run, since when, and what to do.

    The limits are in the section 'health' of a run's configuration: 'forks: {warn: 0.1, stop: 0.5, steps: 3}', or
    'forks: off'.
    """
    if catalogue:
        _list_catalogue(format_)
        return
    settings: Settings = context.obj
    name = run or settings.run
    reports = read_progress(progress_path(settings, name))
    if not reports:
        raise NotFoundError(
            f"run {name}: expected reports of its steps in {progress_path(settings, name)}, found none; check the run"
            " and --dir, or wait for its first step"
        )
    last = reports[-1]
    if format_ == "jsonl":
        write_lines(last.health)
        return
    typer.echo(f"run {name}, step {last.step}: {'' if last.health else 'healthy'}".rstrip())
    for finding in last.health:
        typer.echo(f"{finding.level}: {finding}")
    print_link(settings, "run", name)


def _list_catalogue(format_: str) -> None:
    if format_ == "jsonl":
        write_lines({name: getattr(entry, name) for name in _FIELDS} for entry in STEP_CHECKS)
        return
    table = Table("name", "measures", "unit", "warn", "stop", "steps", box=None, pad_edge=False)
    for entry in STEP_CHECKS:
        table.add_row(entry.name, entry.measures, entry.unit, *map(_number, (entry.warn, entry.stop, entry.steps)))
    draw_table(table)


_FIELDS = tuple(field.name for field in msgspec.structs.fields(StepCheck) if field.name != "measure")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
