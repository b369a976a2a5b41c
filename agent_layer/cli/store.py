"""This file holds the commands that take care of the store: ``store reindex`` and ``store check``."""

from typing import Annotated

import typer

from agent_layer.cli import store_compact, store_delete, store_expire
from agent_layer.cli.progress import show_progress
from agent_layer.store.figures import describe
from agent_layer.store.store import open_store

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Care of the store.", no_args_is_help=True)
    group.command()(reindex)
    group.command()(check)
    store_compact.register(group)
    store_delete.register(group)
    store_expire.register(group)
    app.add_typer(group, name="store")


def reindex(
    context: typer.Context,
    drop: Annotated[bool, typer.Option("--drop", help="Empty the index first.")] = False,
) -> None:
    """Rebuild the Redis index from the objects alone."""
    store = open_store(context.obj)
    with show_progress("segments") as progress:
        report = store.reindex(drop=drop, progress=progress)
    typer.echo(f"{report.num_segments - len(report.corrupt)} of {report.num_segments} segments indexed")
    for reason in report.corrupt:
        typer.echo(f"left out: {reason}", err=True)
    if report.corrupt:
        raise typer.Exit(1)


def check(
    context: typer.Context,
    repair: Annotated[bool, typer.Option("--repair", help="Mend the index where it differs from the objects.")] = False,
) -> None:
    """Compare index and objects both ways, and every checksum."""
    store = open_store(context.obj)
    with show_progress("segments") as progress:
        report = store.check(repair=repair, progress=progress)
    for finding in report.findings:
        typer.echo(f"{finding.kind}: {finding.subject}: {finding.detail}", err=True)
    counts = f"{report.num_segments} segments, {report.num_trajectories} trajectories, {len(report.findings)} findings"
    typer.echo(f"{counts}, mended" if report.repaired else counts)
    for line in describe(report.figures):
        typer.echo(line)
    if not report.is_sound:
        raise typer.Exit(1)
