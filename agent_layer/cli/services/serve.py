"""Command that serves the gateway in front of engines that run elsewhere: ``serve``."""

import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from agent_layer.engines import open_engine_registry, register_engine
from agent_layer.errors import BadInputError, EngineError
from agent_layer.gateway import listen, serve_gateway
from agent_layer.infra import open_redis, reachable_host
from agent_layer.local import (
    GatewayProcesses,
    claim_operator_key,
    operator_key_path,
    run_compactor,
    run_provider_proxy,
    shell_exports,
)
from agent_layer.recorder import ensure_shipper
from agent_layer.settings import Settings

_CHECK_SECONDS = 0.1


def serve(
    context: typer.Context,
    *,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes a free one.")] = 8790,
    processes: Annotated[int, typer.Option(min=1, help="Gateway processes that share the port.")] = 1,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate to serve https with (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, unless it is in the same file.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Let others connect without TLS.")] = False,
    engines_later: Annotated[
        bool, typer.Option("--engines-later", help="Start without an engine: calls wait for 'train --on ray'.")
    ] = False,
) -> None:
    """Serve the gateway for configured engines (AGENT_LAYER_VLLM_URLS) and Redis."""
    options = {"tls_cert": tls_cert, "tls_key": tls_key, "insecure": insecure or None}
    given: Settings = context.obj
    settings = claim_operator_key(given).model_copy(update={name: value for name, value in options.items() if value})
    _know_engines(settings, are_needed=not engines_later)
    if not given.api_key:
        typer.echo(
            f"operator key: kept in {operator_key_path(given)}; set AGENT_LAYER_API_KEY on the machines of workers,"
            " trainers and other gateways",
            err=True,
        )
    ensure_shipper(settings)  # for logs of processes that were killed
    with run_provider_proxy(settings) as found, run_compactor(found):
        if processes > 1:
            _serve_processes(found, host, port, processes)
        else:
            _serve_here(found, host, port)


def _serve_here(settings: Settings, host: str, port: int) -> None:
    listener = listen(host, port)
    scheme = "https" if settings.tls_cert else "http"
    settings = settings.model_copy(
        update={"gateway_url": f"{scheme}://{reachable_host(host)}:{listener.getsockname()[1]}"}
    )
    serve_gateway(settings, [listener], lambda: _tell(settings))


def _serve_processes(settings: Settings, host: str, port: int, num_processes: int) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    gateway = GatewayProcesses(settings=settings, host=host, port=port, num_processes=num_processes)
    with suppress(KeyboardInterrupt), gateway:
        _tell(settings.model_copy(update={"gateway_url": gateway.url}))
        while True:
            gateway.check()
            time.sleep(_CHECK_SECONDS)


def _tell(settings: Settings) -> None:
    for line in shell_exports(settings):
        typer.echo(line)


def _know_engines(settings: Settings, *, are_needed: bool) -> None:
    """Register the configured engines; without any, the registry must know one if they are needed."""
    with open_redis(settings) as redis:
        try:
            for url in settings.engine_urls:
                register_engine(settings, redis, url)
        except EngineError as error:
            raise BadInputError(str(error)) from error
        if are_needed and not open_engine_registry(settings, redis).engines():
            raise BadInputError(
                "serve: expected an engine, but AGENT_LAYER_VLLM_URLS is not set and none is registered; set it to the"
                " address of a vLLM server, or start one with 'agent-layer up --model PATH'; --engines-later serves"
                " without one"
            )
