"""Commands about inference engines: list them; let one join, drain or leave."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from agent_layer.engines import Engine, join_engine, leave_engine, open_engine_registry
from agent_layer.errors import BadInputError, EngineError
from agent_layer.infra.redis import open_redis
from agent_layer.settings import Settings

Url = Annotated[str, typer.Argument(help="Address of the engine, http://HOST:PORT.")]


def engines(context: typer.Context) -> None:
    """List inference engines; let one join, drain or leave."""
    if context.invoked_subcommand is None:
        list_engines(context)


def list_engines(context: typer.Context) -> None:
    """List all engines of the namespace."""
    settings: Settings = context.obj
    with open_redis(settings) as redis:
        found = open_engine_registry(settings, redis).engines()
    table = Table("engine", "run", "version", "state", "model", box=None)
    for engine in found:
        table.add_row(engine.url, engine.run, str(engine.version), _state_of(engine), engine.model)
    Console(soft_wrap=True).print(table)


def join(
    context: typer.Context,
    url: Url,
    location: Annotated[
        str | None, typer.Option(help="Where a newly started engine loaded its weights; default: what it reports.")
    ] = None,
) -> None:
    """Register an engine for calls of the run; a drained one serves again."""
    settings: Settings = context.obj
    with open_redis(settings) as redis:
        try:
            engine = join_engine(settings, redis, url, location)
        except EngineError as error:
            raise BadInputError(str(error)) from error
    typer.echo(f"{engine.url} serves version {engine.version} of run {engine.run}")


def drain(context: typer.Context, url: Url) -> None:
    """Send an engine no more calls. Calls in flight end, new weights still arrive."""
    settings: Settings = context.obj
    with open_redis(settings) as redis:
        open_engine_registry(settings, redis).change(_address(url), is_drained=True)
    typer.echo(f"{_address(url)} gets no more calls")


def leave(context: typer.Context, url: Url) -> None:
    """Remove an engine from the registry; its calls in flight end normally."""
    settings: Settings = context.obj
    with open_redis(settings) as redis:
        leave_engine(settings, redis, _address(url))
    typer.echo(f"{_address(url)} left")


def _address(url: str) -> str:
    return url.strip().rstrip("/").removesuffix("/v1")


def _state_of(engine: Engine) -> str:
    return f"{engine.state}, drained" if engine.is_drained else engine.state
