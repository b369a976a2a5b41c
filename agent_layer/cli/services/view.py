"""Command that serves the page and its API: ``view``."""

import asyncio
import secrets
import signal
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer
from aiohttp import web

from agent_layer.dispatcher import Dispatcher
from agent_layer.errors import BadInputError, UnreachableError
from agent_layer.gateway import check_exposure, listen, load_tls, serve_until_stopped
from agent_layer.infra import format_count, open_objects, reachable_host, temporary_home
from agent_layer.settings import Settings
from agent_layer.store import Store, find_unindexed, list_segments, open_store
from agent_layer.view import Cooled, ReadContext, announce_page, build_view_app, find_cooled, open_recording


def archive_settings(settings: Settings, bucket: str, directory: Path) -> Settings:
    """Return settings for an index of one's own in a directory, over the objects of a bucket."""
    own = {"redis_url": None, "reader_redis_url": None, "ingest_url": None, "objects_url": bucket, "dir": directory}
    return settings.model_copy(update=own)


_MAX_NAMED = 8
_LISTING_SECONDS = 2.0
"""Longest retry of the listing that tells whether Redis lacks runs: the page opens without its bucket, too."""


@contextmanager
def open_shown(settings: Settings, demo: bool, bucket: str | None) -> Generator[ReadContext]:
    """Open what the page shows: the recording, what a bucket holds, or the configured store.

    Where Redis holds nothing of a configured store, what its objects hold is shown as a bucket alone, and said so.
    Where it lacks some runs, these are read from the objects beside it.
    """
    if demo:
        with open_recording(settings) as opened:
            yield ReadContext(*opened)
        return
    if bucket is None:
        reading = settings.model_copy(update={"redis_url": settings.reader_redis_url or settings.redis_url})
        store = open_store(reading)
        if not _is_cooled(store, reading):
            live = ReadContext(reading, store)
            with _open_cooled(live) as live.cooled:
                yield live
            return
        typer.echo(
            f"view: Redis holds no run of namespace {settings.namespace!r}, which was cooled or lost; this shows what"
            f" {settings.objects_location} holds, and nothing that begins now ('agent-layer store reindex' restores it)"
        )
    with temporary_home("al-view-") as folder:
        location = bucket or settings.objects_location
        archived = archive_settings(settings, location, folder)
        store = open_store(archived)
        found = store.admin.reindex()
        typer.echo(f"view: {found.num_segments} segments of {location}, {len(found.corrupt)} of them damaged")
        yield ReadContext(archived if bucket else settings, store, is_archive=True)


@contextmanager
def _open_cooled(live: ReadContext) -> Generator[Cooled | None]:
    """Open what the objects hold beyond Redis; where they hold nothing, this costs one listing of them."""
    settings, store = live.settings, live.store
    try:
        quick = settings.model_copy(update={"retry_seconds": min(settings.retry_seconds, _LISTING_SECONDS)})
        unindexed = find_unindexed(store.redis, store.keys, open_objects(quick))
    except UnreachableError:  # the page says so where it reads them
        unindexed = []
    if not unindexed:
        yield None
        return
    with temporary_home("al-view-") as folder:
        beside = open_store(archive_settings(settings, settings.objects_location, folder))
        beside.admin.reindex(only=unindexed)
        bucket = ReadContext(settings, beside, is_archive=True, is_cooled=True)
        cooled = find_cooled(live, bucket)
        if cooled is not None:
            named = ", ".join(sorted(cooled.runs)[:_MAX_NAMED])
            typer.echo(
                f"view: Redis lacks {format_count(sum(cooled.runs.values()), 'trajectory')} of"
                f" {format_count(len(cooled.runs), 'run')}, cooled or lost, read from {settings.objects_location}:"
                f" {named}{', …' * (len(cooled.runs) > _MAX_NAMED)} ('agent-layer store reindex' restores them)"
            )
        yield cooled


def _is_cooled(store: Store, settings: Settings) -> bool:
    """Return whether Redis knows no run and has no work, although segments are stored."""
    if store.redis.scard(store.keys.runs):
        return False
    try:
        stats = Dispatcher(store.redis, settings).stats()
        has_work = bool(stats.num_open_groups or stats.num_queued or stats.num_leased)
        return not has_work and bool(list_segments(store.keys, store.objects))
    except UnreachableError:  # a role that may not ask, or no objects: the page says so where it reads
        return False


def view(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes a free one.")] = 8792,
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Take rewards, pauses, drains and retries from an operator, too.")
    ] = False,
    bucket: Annotated[
        str | None, typer.Option(help="Show what s3://BUCKET/PREFIX or file:///DIR holds, without its Redis.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Show a recorded run, from a temporary store that ends with the command.")
    ] = False,
) -> None:
    """Serve the page, and an HTTP API over the store under /api/v1, for reading only without --allow-writes.

    Beyond this machine it answers only with the token of the printed address, or with the operator's key as a bearer.
    Writing needs the operator: on this machine, who opens the printed address; beyond it, who has the key.
    """
    settings: Settings = context.obj
    if context.invoked_subcommand is not None:
        return
    if sum((allow_writes, demo, bucket is not None)) > 1:
        raise BadInputError(
            "view: expected one of --demo, --bucket or --allow-writes, found several; both others only read"
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # while it opens a recording, too
    with suppress(KeyboardInterrupt), ExitStack() as opened, closing(listen(host, port)) as listener:
        address, taken = listener.getsockname()[:2]
        check_exposure(settings, address)
        is_local = ip_address(address).is_loopback
        if allow_writes and not is_local and settings.api_key is None:
            raise BadInputError(
                "view: expected the operator's key, which alone writes beyond this machine, found none; set"
                " AGENT_LAYER_API_KEY, listen at 127.0.0.1, or leave out --allow-writes"
            )
        reader_token = None if is_local else secrets.token_urlsafe(24)
        operator_token = secrets.token_urlsafe(24) if is_local and allow_writes else None
        scheme = "https" if settings.tls_cert else "http"
        token = reader_token or operator_token
        token_query = f"?token={token}" if token else ""
        url = f"{scheme}://{reachable_host(address)}:{taken}/"
        shown = opened.enter_context(open_shown(settings, demo, bucket))
        if shown.is_archive and allow_writes:
            raise BadInputError(
                "view: expected an index to write to, found none in Redis; run 'agent-layer store reindex', or leave"
                " out --allow-writes"
            )
        place = f"#/run/{shown.settings.run}" if demo else ""

        async def announce(_: web.Application) -> None:
            typer.echo(f"view: {url}{token_query}{place}")
            if not demo and not shown.is_archive:  # commands ask another store than those show
                opened.enter_context(announce_page(settings, url))

        app = build_view_app(
            shown,
            reader_token,
            writable=open_store(settings) if allow_writes else None,
            operator_token=operator_token,
        )
        app.on_startup.append(announce)
        asyncio.run(serve_until_stopped(app, [listener], load_tls(settings), settings.header_seconds))
