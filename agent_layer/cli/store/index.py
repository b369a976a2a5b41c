"""Commands that rebuild, check and empty the index: ``store reindex``, ``store check`` and ``store cool``."""

from typing import Annotated

import typer

from agent_layer.cli.ui.output import show_progress
from agent_layer.infra import format_count
from agent_layer.state import forget_loss
from agent_layer.store import describe_call_stats, open_store


def reindex(
    context: typer.Context,
    drop: Annotated[
        bool, typer.Option("--drop", help="Empty the index first, so that only what the objects say remains.")
    ] = False,
) -> None:
    """Rebuild the Redis index from the objects; continue a rebuild that was stopped."""
    store = open_store(context.obj)
    with show_progress("segments") as progress:
        report = store.admin.reindex(drop=drop, progress=progress)
    resumed = f", {report.num_resumed} of them before it was stopped" if report.num_resumed else ""
    typer.echo(f"{report.num_segments - len(report.corrupt)} of {report.num_segments} segments indexed{resumed}")
    forget_loss(store.redis, store.keys)
    for reason in report.corrupt:
        typer.echo(f"in quarantine, what is whole of it is served: {reason}", err=True)
    if report.corrupt:
        raise typer.Exit(1)


def check(
    context: typer.Context,
    repair: Annotated[bool, typer.Option("--repair", help="Mend the index where it differs from the objects.")] = False,
) -> None:
    """Compare index and objects in both directions, and verify every checksum."""
    store = open_store(context.obj)
    with show_progress("segments") as progress:
        report = store.admin.check(repair=repair, progress=progress)
    for finding in report.findings:
        typer.echo(f"{finding.kind}: {finding.subject}: {finding.detail}", err=True)
    found = {"segment": report.num_segments, "trajectory": report.num_trajectories, "finding": len(report.findings)}
    counts = ", ".join(format_count(num, word) for word, num in found.items())
    typer.echo(f"{counts}, mended" if report.repaired else counts)
    for line in describe_call_stats(report.call_stats):
        typer.echo(line)
    if not report.is_sound:
        raise typer.Exit(1)


def cool(context: typer.Context) -> None:
    """Remove a finished namespace from Redis. Its objects stay; 'reindex' restores it."""
    store = open_store(context.obj)
    num_known = store.admin.offload()
    typer.echo(f"{num_known} trajectories of namespace {store.keys.namespace!r} are in the objects alone now")
