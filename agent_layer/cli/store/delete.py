"""This file holds the command that deletes what was kept for long enough: ``store expire``."""

from typing import Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from agent_layer.cli.filters import takes_filters
from agent_layer.cli.output import draw_table
from agent_layer.cli.progress import show_progress
from agent_layer.cli.store_delete import describe_deletion, warn_of_bytes
from agent_layer.store.filters import Filters
from agent_layer.store.retention import ExpiryReport
from agent_layer.store.store import open_store

__all__ = ["register"]


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command()(expire)


@takes_filters
def expire(
    context: typer.Context,
    *,
    filters: Filters,
    older_than: Annotated[
        str | None, typer.Option(help="Rule: it ended before then. RFC 3339 in UTC, or so long ago: 30d.")
    ] = None,
    policy_below: Annotated[
        int | None, typer.Option(help="Rule: all of its tokens are of policy versions below this one.")
    ] = None,
    duplicates: Annotated[
        Literal["newest"] | None,
        typer.Option(help="Rule: its task was asked for again later, and answered; the newest stays."),
    ] = None,
    stale_env: Annotated[
        str | None,
        typer.Option(
            help="Rule: it ran in environment NAME, in another version than the newest; or than VERSION: NAME=VERSION."
        ),
    ] = None,
    unread: Annotated[bool, typer.Option("--unread", help="Let go also what a consumer has not acknowledged.")] = False,
    keep_bytes: Annotated[
        bool, typer.Option("--keep-bytes", help="Faster: leave the bytes in the objects to the next 'store compact'.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Nothing asks again.")] = False,
) -> None:
    """Delete what was kept for long enough: trajectories for which every rule and filter given holds.

    Without --yes it only shows what would go. What still runs stays, and so does what a consumer of its run has yet to
    acknowledge. Example: --older-than 30d --split eval.
    """
    with show_progress("segments") as progress:
        report = open_store(context.obj).expire(
            dry_run=not yes,
            purge=not keep_bytes,
            progress=progress,
            older_than=older_than,
            policy_below=policy_below,
            duplicates=duplicates,
            stale_env=_read_env(stale_env),
            unread=unread,
            **filters,
        )
    _print(report)
    typer.echo(f"{'deleted' if yes else 'would delete'} {describe_deletion(report.deletion)}")
    if not yes and report.counts:
        typer.echo("nothing was changed; add --yes to do it", err=True)
    warn_of_bytes(report.deletion, keep_bytes=keep_bytes)


def _read_env(text: str | None) -> str | tuple[str, str] | None:
    name, equals, version = (text or "").partition("=")
    return (name, version) if equals else name or None


def _print(report: ExpiryReport) -> None:
    if report.counts:
        table = Table("run", "status", "type", "count", box=None, pad_edge=False)
        for (run, status, task_type), count in report.counts.items():
            table.add_row(escape(run), status, escape(task_type), str(count))
        draw_table(table)
    if report.num_running:
        typer.echo(f"kept: {report.num_running} that run, or whose groups are not closed")
    if report.num_unread:
        typer.echo(f"kept: {report.num_unread} whose groups a consumer has not acknowledged; --unread lets them go")
