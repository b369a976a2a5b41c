"""Commands that send stored trajectories to other systems: ``export otlp``."""

import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Annotated

import typer

from agent_layer.errors import BadInputError, CorruptRecordError, NotFoundError, UnreachableError
from agent_layer.export import ExportedTrace, Feed, OtlpSender, StoreFeedPosition, make_trace
from agent_layer.infra import format_count
from agent_layer.settings import Settings
from agent_layer.store import Store, open_store

_BATCH = 16
"""Trajectories that are read and sent together."""
_WAIT_SECONDS = 0.5
_RETRY_SECONDS = 5.0


def otlp(
    context: typer.Context,
    *,
    endpoint: Annotated[str | None, typer.Option(help="Such as http://localhost:4318.")] = None,
    run: Annotated[str | None, typer.Option()] = None,
    task: Annotated[str | None, typer.Option()] = None,
    since: Annotated[str | None, typer.Option(help="Started then or later: RFC 3339 in UTC, or 2h, 3d ago.")] = None,
    accepted: Annotated[bool, typer.Option("--accepted/--any", help="Only what counts for its rollout.")] = False,
    contents: Annotated[bool, typer.Option("--contents", help="Include messages, and what tools answered.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Then send each trajectory when it ends.")] = False,
    consumer: Annotated[str, typer.Option(help="Name under which --follow stores its position.")] = "otlp",
) -> None:
    """Send finished trajectories as OpenTelemetry spans (GenAI conventions) to an OTLP/HTTP endpoint."""
    settings: Settings = context.obj
    store, sender = open_store(settings), _sender(settings, endpoint)
    feed = Feed(store, StoreFeedPosition(store, consumer), run=run, task=task, since=since, accepted=accepted or None)
    num_trajectories, num_spans = 0, 0
    if not (follow and feed.resume()):
        for batch in _batches(row.trajectory_id for row in feed.scan_stored()):
            num_spans += _send(store, sender, batch, contents=contents)
            num_trajectories += len(batch)
        typer.echo(f"{format_count(num_trajectories, 'trajectory')}, {format_count(num_spans, 'span')} sent")
    if follow:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            _follow(store, sender, feed, contents=contents)


def _follow(store: Store, sender: OtlpSender, feed: Feed, *, contents: bool) -> None:
    """Send trajectories as they end, until interrupted; retry those that the endpoint does not take."""
    wait_seconds = _WAIT_SECONDS
    while True:
        batch = feed.wait_changed(wait_seconds)[:_BATCH]
        try:
            _send(store, sender, [row.trajectory_id for row in feed.matching_rows(batch)], contents=contents)
        except UnreachableError as error:
            typer.echo(f"agent-layer: {error}", err=True)
            wait_seconds = _RETRY_SECONDS
        else:
            feed.mark_done(batch)
            wait_seconds = _WAIT_SECONDS


def _send(store: Store, sender: OtlpSender, trajectory_ids: Sequence[str], *, contents: bool) -> int:
    return sender.send([trace for one in trajectory_ids for trace in _read(store, one, contents=contents)])


def _read(store: Store, trajectory_id: str, *, contents: bool) -> Iterator[ExportedTrace]:
    """Yield the trajectory's trace; if it cannot be read, print why and yield nothing."""
    try:
        yield make_trace(store.get(trajectory_id, blobs=contents), contents=contents)
    except (CorruptRecordError, NotFoundError) as error:
        typer.echo(f"left out: {error}", err=True)


def _sender(settings: Settings, endpoint: str | None) -> OtlpSender:
    if url := endpoint or settings.otlp_endpoint:
        if not url.startswith(("http://", "https://")):
            raise BadInputError(
                f"export otlp: expected http://HOST:PORT or https://HOST:PORT, found {url!r}; correct it"
            )
        return OtlpSender(url, "agent-layer", settings.otlp_seconds)
    raise BadInputError(
        "export otlp: expected an endpoint, found none; give --endpoint http://localhost:4318, or set"
        " AGENT_LAYER_OTLP_ENDPOINT"
    )


def _batches(trajectory_ids: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(trajectory_ids)
    while batch := list(islice(remaining, _BATCH)):
        yield batch
