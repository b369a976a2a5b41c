"""Commands about inference engines: list them; let one join, drain or leave; hold their calls."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from agent_layer.cli.ui.links import print_link
from agent_layer.engines import (
    Engine,
    PushedVersion,
    drain_engine,
    hold_engines,
    join_engine,
    leave_engine,
    open_engine_registry,
    release_engines,
)
from agent_layer.errors import BadInputError, EngineError
from agent_layer.infra import open_redis
from agent_layer.settings import Settings

Url = Annotated[str, typer.Argument(help="Address of the engine, http://HOST:PORT.")]
Urls = Annotated[list[str], typer.Argument(help="Addresses of engines, http://HOST:PORT.")]


_WIDTH = 400


def engines(context: typer.Context) -> None:
    """List inference engines; let one join, drain or leave; hold their calls."""
    if context.invoked_subcommand is None:
        list_engines(context)


def list_engines(context: typer.Context) -> None:
    """List all engines of the namespace."""
    settings: Settings = context.obj
    with open_redis(settings) as redis:
        found = open_engine_registry(settings, redis).engines()
    table = Table("engine", "run", "version", "state", "switches", "last stall", "model", box=None)
    for engine in found:
        stall = "" if engine.stall_seconds is None else f"{engine.stall_seconds:.2f} s"
        about = (engine.url, engine.run, str(engine.version), _describe_state(engine), str(engine.num_switches), stall)
        table.add_row(*about, engine.model)
    Console(soft_wrap=True, width=_WIDTH).print(table)  # addresses are copied from here, so none is cut
    print_link(settings, "fleet")


def join(
    context: typer.Context,
    url: Url,
    location: Annotated[
        str | None, typer.Option(help="Where a newly started engine loaded its weights; default: what it reports.")
    ] = None,
    is_pushed: Annotated[
        bool,
        typer.Option(
            "--pushed", help="Its owner (such as veRL) pushes weights into it: no calls until it announces a version."
        ),
    ] = False,
) -> None:
    """Let an engine answer calls, once it has the newest version; a drained one serves again."""
    settings: Settings = context.obj
    with open_redis(settings) as redis:
        try:
            engine = join_engine(settings, redis, url, location, is_pushed=is_pushed)
        except EngineError as error:
            raise BadInputError(str(error)) from error
    if engine.state == "serving":
        typer.echo(f"{engine.url} serves version {engine.version} of run {engine.run}")
    else:
        typer.echo(f"{engine.url} joined run {engine.run}; it gets calls once its owner announces a version")


def drain(
    context: typer.Context,
    url: Url,
    seconds: Annotated[float, typer.Option(min=0, help="Longest wait for calls in flight; 0: no wait.")] = 120.0,
) -> None:
    """Send an engine no more calls, and wait for those in flight. New weights still arrive."""
    settings: Settings = context.obj
    with open_redis(settings) as redis:
        drain_engine(settings, redis, _address(url), seconds)
    typer.echo(f"{_address(url)} gets no more calls" + ("; none is in flight" if seconds else ""))


def hold(
    context: typer.Context,
    urls: Urls,
    seconds: Annotated[float, typer.Option(min=0, help="Longest wait for calls in flight.")] = 120.0,
) -> None:
    """Let calls to engines wait while their owner changes weights; returns when none is in flight.

    Then abort or pause what the engines themselves still run, push the weights, reset their caches, and 'release'.
    Calls wait up to AGENT_LAYER_REQUEST_SECONDS.

    agent-layer engines hold http://127.0.0.1:8000 http://127.0.0.1:8001
    """
    settings: Settings = context.obj
    with open_redis(settings) as redis:
        held = hold_engines(settings, redis, urls, seconds)
    typer.echo(f"{', '.join(held)}: calls wait, none is in flight; 'agent-layer engines release' ends it")


def release(
    context: typer.Context,
    urls: Urls,
    version: Annotated[int | None, typer.Option(min=0, help="Policy version that the engines have now.")] = None,
    location: Annotated[str | None, typer.Option(help="Directory or name of its weights.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Nothing was pushed: they serve what they served.")] = False,
) -> None:
    """Let calls go to held engines again, under the version that they have now.

    Name only engines that have it; others stay out of service until a later hold and release.

    agent-layer engines release http://127.0.0.1:8000 --version 7 --location s3://weights/7
    """
    settings: Settings = context.obj
    if cancel == (version is not None) or (version is None) != (location is None):
        raise BadInputError("engines release: expected either --version and --location, or --cancel; give one of both")
    pushed = None if version is None or location is None else PushedVersion(number=version, location=location)
    with open_redis(settings) as redis:
        released = release_engines(settings, redis, urls, pushed)
    typer.echo(f"{', '.join(released)}: calls go on")


def leave(context: typer.Context, url: Url) -> None:
    """Remove an engine from the registry; its calls in flight end normally."""
    settings: Settings = context.obj
    with open_redis(settings) as redis:
        leave_engine(settings, redis, _address(url))
    typer.echo(f"{_address(url)} left")


def _address(url: str) -> str:
    return url.strip().rstrip("/").removesuffix("/v1")


def _describe_state(engine: Engine) -> str:
    marks = [name for name, has in (("drained", engine.is_drained), ("pushed by its owner", engine.is_pushed)) if has]
    return ", ".join([engine.state, *marks])
