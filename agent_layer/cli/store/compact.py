"""Commands that make the store smaller: ``store compact`` and ``store gc``.

Both may be stopped or killed at any time; the next run goes on.
"""

from collections.abc import Iterable
from typing import Annotated

import typer

from agent_layer.cli.ui.output import describe_size, show_progress
from agent_layer.infra import format_count
from agent_layer.store import Finding, Grace, open_store
from agent_layer.times import parse_span


def compact(
    context: typer.Context,
    only_dead: Annotated[
        bool, typer.Option("--only-dead", help="Merge nothing, but remove all deleted bytes now.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report how much there is to do.")] = False,
) -> None:
    """Merge small segments, and rewrite segments that hold deleted bytes; readers are not disturbed.

    A segment is an object that holds many records; fewer segments are read faster. Run it about once an hour:
    deleted bytes are then gone within about a day. It may be stopped at any time.
    """
    store = open_store(context.obj)
    with show_progress("segments") as progress:
        report = store.admin.compact(only_dead=only_dead, dry_run=dry_run, progress=progress)
    deed = "would become" if dry_run else "became"
    sizes = (
        describe_size(report.bytes_removed)
        if dry_run
        else f"{describe_size(report.bytes_removed)} -> {describe_size(report.bytes_made)}"
    )
    typer.echo(
        f"{report.num_removed} of {format_count(report.num_segments, 'segment')} {deed} {report.num_made} ({sizes}),"
        f" {report.num_left} left that hold bytes of something deleted"
    )
    _end_with(report.findings)


def gc(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only name what would go.")] = False,
    grace: Annotated[
        str, typer.Option(help="What was stored less than this ago stays: 90s, 1h, 3d. Tombstones stay for 30 days.")
    ] = "1h",
) -> None:
    """Remove unneeded objects: replaced segments, unfinished objects, old tombstones.

    An object that may be the only copy of a record stays, and is named. Crashes leave unneeded objects; 'store
    compact' leaves none.
    """
    store = open_store(context.obj)
    seconds = parse_span(grace, "--grace")
    with show_progress("objects") as progress:
        report = store.admin.collect_garbage(grace=Grace(seconds=seconds), dry_run=dry_run, progress=progress)
    for one in report.removed if dry_run else ():
        typer.echo(f"{one.key}: {one.reason}")
    deed = "would go" if dry_run else "removed"
    objects = format_count(report.num_objects, "object")
    typer.echo(f"{len(report.removed)} of {objects} {deed} ({describe_size(report.bytes_removed)})")
    _end_with(report.findings)


def _end_with(findings: Iterable[Finding]) -> None:
    """Print what was left alone; fail if there is any."""
    lines = [f"left alone: {one.kind}: {one.subject}: {one.detail}" for one in findings]
    for line in lines:
        typer.echo(line, err=True)
    if lines:
        raise typer.Exit(1)
