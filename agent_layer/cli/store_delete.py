"""This file holds the command that deletes trajectories down to the bytes: ``store delete``."""

from typing import Annotated

import typer

from agent_layer.cli.filters import takes_filters
from agent_layer.cli.output import describe_size
from agent_layer.cli.progress import show_progress
from agent_layer.dispatcher.client import connect
from agent_layer.store.deletion import DeletionReport
from agent_layer.store.filters import Filters
from agent_layer.store.store import open_store

__all__ = ["describe_deletion", "register", "warn_of_bytes"]


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command()(delete)


@takes_filters
def delete(
    context: typer.Context,
    trajectory: Annotated[str | None, typer.Argument(help="Id of one; or say with options which are meant.")] = None,
    *,
    filters: Filters,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, only say what would go.")] = False,
    keep_bytes: Annotated[
        bool, typer.Option("--keep-bytes", help="Faster: leave the bytes in the objects to the next 'store compact'.")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="First cancel their groups that the dispatcher still tries.")
    ] = False,
) -> None:
    """Delete trajectories for ever: no search, rebuild or replay brings them back, and no object holds their bytes.

    Meant is one id, or all that pass every option given: --label user=u7, or --task t1 --run r1. Nothing asks again, so
    look with --dry-run first. Closed groups of which nothing is left go too. Stopped half-way, run it again.
    """
    store = open_store(context.obj)
    if cancel and not dry_run:
        connect(context.obj).cancel(store.delete(trajectory, dry_run=True, **filters).open_groups)
    with show_progress("segments") as progress:
        report = store.delete(trajectory, dry_run=dry_run, purge=not keep_bytes, progress=progress, **filters)
    typer.echo(f"{'would delete' if dry_run else 'deleted'} {describe_deletion(report)}")
    for group_id in report.open_groups:
        typer.echo(f"open: {group_id}: the dispatcher still tries it; add --cancel to end it first", err=True)
    warn_of_bytes(report, keep_bytes=keep_bytes)


def describe_deletion(report: DeletionReport) -> str:
    """Say how much it is."""
    running = f" ({report.num_running} of them without an end)" if report.num_running else ""
    return (
        f"{report.num_trajectories} trajectories{running} and {report.num_groups} groups:"
        f" {describe_size(report.num_bytes)} in {report.num_segments_to_rewrite} segments"
    )


def warn_of_bytes(report: DeletionReport, *, keep_bytes: bool) -> None:
    """Say which bytes of the dead are left; that is a failure unless it was wanted."""
    if report.dry_run or not report.num_segments_left:
        return
    left = f"{report.num_segments_left} segments still hold bytes of something dead"
    if keep_bytes:
        typer.echo(f"{left}; they go with the next compaction")
        return
    typer.echo(f"{left}; 'agent-layer store check' tells what is wrong with them, then delete again", err=True)
    raise typer.Exit(1)
