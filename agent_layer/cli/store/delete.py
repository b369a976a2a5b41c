"""Commands that delete trajectories down to the bytes: ``store delete``, and ``store expire`` by rules."""

from typing import Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from agent_layer.cli.ui.output import describe_size, draw_table, show_progress
from agent_layer.dispatcher import connect
from agent_layer.infra import format_count
from agent_layer.store import DeletionReport, ExpiryReport, Filters, open_store, takes_filters

_MAX_SHOWN = 32
"""Updates that a line names."""


@takes_filters
def delete(
    context: typer.Context,
    trajectory: Annotated[str | None, typer.Argument(help="Id of one; without it, options select them.")] = None,
    *,
    filters: Filters,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, only report what would go.")] = False,
    keep_bytes: Annotated[
        bool, typer.Option("--keep-bytes", help="Faster: leave the bytes in the objects to the next 'store compact'.")
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="First cancel those of their groups that are open.")] = False,
) -> None:
    """Delete trajectories for ever: from search, rebuild and replay, and their bytes from the objects.

    Deletes one id, or all that pass every option given: --label user=u7, or --task t1 --run r1. It asks no question, so
    look with --dry-run first. Closed groups that become empty go too. If it was stopped half-way, run it again.
    """
    store = open_store(context.obj)
    if cancel and not dry_run:
        connect(context.obj).cancel(store.delete(trajectory, dry_run=True, **filters).open_groups)
    with show_progress("segments") as progress:
        report = store.delete(trajectory, dry_run=dry_run, purge=not keep_bytes, progress=progress, **filters)
    typer.echo(f"{'would delete' if dry_run else 'deleted'} {describe_deletion(report)}")
    warn_of_updates(report)
    for group_id in report.open_groups:
        typer.echo(f"open: {group_id}: the dispatcher still tries it; add --cancel to end it first", err=True)
    warn_of_bytes(report, keep_bytes=keep_bytes)


def describe_deletion(report: DeletionReport) -> str:
    """Return how much a deletion removes, as a phrase."""
    running = f" ({report.num_running} of them without an end)" if report.num_running else ""
    trajectories, groups = format_count(report.num_trajectories, "trajectory"), format_count(report.num_groups, "group")
    return (
        f"{trajectories}{running} and {groups}:"
        f" {describe_size(report.num_bytes)} in {format_count(report.num_segments_to_rewrite, 'segment')}"
    )


def warn_of_updates(report: DeletionReport) -> None:
    """Report which updates had learned from what is deleted: their weights keep it."""
    for run, steps in report.learned.items():
        shown = ", ".join(map(str, steps[:_MAX_SHOWN])) + (" …" if len(steps) > _MAX_SHOWN else "")
        updates = f"{format_count(len(steps), 'update')} of run {run} had learned from them: {shown}"
        typer.echo(f"{updates}; weights from step {steps[0]} on keep that")


def warn_of_bytes(report: DeletionReport, *, keep_bytes: bool) -> None:
    """Warn of deleted bytes that are still stored; fail unless the user asked to keep them."""
    if report.dry_run or not report.num_segments_left:
        return
    left = f"bytes of something dead are still in {format_count(report.num_segments_left, 'segment')}"
    if keep_bytes:
        typer.echo(f"{left}; they go with the next compaction")
        return
    typer.echo(f"{left}; 'agent-layer store check' tells what is wrong with them, then delete again", err=True)
    raise typer.Exit(1)


@takes_filters
def expire(
    context: typer.Context,
    *,
    filters: Filters,
    older_than: Annotated[
        str | None, typer.Option(help="Rule: it ended before this time, RFC 3339 in UTC, or this long ago: 30d.")
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
    unread: Annotated[bool, typer.Option("--unread", help="Delete also what a consumer has not acknowledged.")] = False,
    keep_bytes: Annotated[
        bool, typer.Option("--keep-bytes", help="Faster: leave the bytes in the objects to the next 'store compact'.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete, without a question.")] = False,
) -> None:
    """Delete trajectories that match every rule and filter given.

    Without --yes it only shows what would go. A trajectory stays while it runs, and until every consumer of its run has
    acknowledged it. Example: --older-than 30d --split eval.
    """
    with show_progress("segments") as progress:
        report = open_store(context.obj).admin.expire(
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
    warn_of_updates(report.deletion)
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
