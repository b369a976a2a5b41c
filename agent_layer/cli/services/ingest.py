"""Command that receives logs of other machines, and spans of other instrumentations: ``ingest``."""

import asyncio
import secrets
from contextlib import closing
from typing import Annotated

import typer
from aiohttp import web

from agent_layer.gateway import check_exposure, listen, load_tls, serve_until_stopped
from agent_layer.infra import reachable_host
from agent_layer.ingest import build_app
from agent_layer.recorder import open_recorder
from agent_layer.settings import Settings


def ingest(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes a free one.")] = 4318,
) -> None:
    """Receive logs of machines that cannot reach the store, and OpenTelemetry spans."""
    base: Settings = context.obj
    changes: dict[str, object] = {"ingest_url": None, "log_roll_seconds": base.ingest_roll_seconds}
    if not (base.ingest_key or base.api_key):
        changes["ingest_key"] = f"ik-{secrets.token_urlsafe(24)}"
    settings = base.model_copy(update=changes)
    listener = listen(host, port)
    address, taken = listener.getsockname()
    scheme = "https" if settings.tls_cert else "http"
    key = settings.ingest_key or settings.api_key

    async def announce(_: web.Application) -> None:
        typer.echo(f"export OTEL_EXPORTER_OTLP_ENDPOINT={scheme}://{reachable_host(address)}:{taken}")
        typer.echo(f"export OTEL_EXPORTER_OTLP_HEADERS=x-api-key={key}")
        typer.echo(f"export AGENT_LAYER_INGEST_URL={scheme}://{reachable_host(address)}:{taken}")
        typer.echo(f"export AGENT_LAYER_INGEST_KEY={key}")

    with closing(listener), closing(open_recorder(settings)) as recorder:
        check_exposure(settings, address)
        recorder.attend()
        app = build_app(settings, recorder)
        app.on_startup.append(announce)
        tls = load_tls(settings)
        asyncio.run(serve_until_stopped(app, [listener], tls, settings.header_seconds))
