"""This file holds the command that receives spans of other instrumentations: ``ingest``."""

import secrets
from contextlib import closing
from typing import Annotated

import typer
from aiohttp import web

from agent_layer.gateway.exposure import check_exposure, tls_of
from agent_layer.gateway.serving import listen
from agent_layer.ingest.app import build_app
from agent_layer.local.addresses import reached
from agent_layer.recorder.log import open_recorder
from agent_layer.settings import Settings

__all__ = ["register"]

_SHUTDOWN_SECONDS = 3.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(ingest)


def ingest(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 4318,
) -> None:
    """Receive OpenTelemetry spans (OTLP over HTTP) and store the model calls in them as steps, as text."""
    settings = _with_key(context.obj)
    listener = listen(host, port)
    address, taken = listener.getsockname()
    check_exposure(settings, address)
    scheme = "https" if settings.tls_cert else "http"

    async def announce(_: web.Application) -> None:
        typer.echo(f"export OTEL_EXPORTER_OTLP_ENDPOINT={scheme}://{reached(address)}:{taken}")
        typer.echo(f"export OTEL_EXPORTER_OTLP_HEADERS=x-api-key={settings.ingest_key or settings.api_key}")

    with closing(open_recorder(settings)) as recorder:
        app = build_app(settings, recorder)
        app.on_startup.append(announce)
        tls = tls_of(settings)
        web.run_app(
            app, sock=listener, ssl_context=tls, access_log=None, print=None, shutdown_timeout=_SHUTDOWN_SECONDS
        )


def _with_key(settings: Settings) -> Settings:
    """Mint a key unless there is one."""
    if settings.ingest_key or settings.api_key:
        return settings
    return settings.model_copy(update={"ingest_key": f"ik-{secrets.token_urlsafe(24)}"})
