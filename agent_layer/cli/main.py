"""This file holds the one command, ``agent-layer``: its global options, its parts, and how errors end it."""

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated

import typer

from agent_layer import __version__
from agent_layer.errors import AgentLayerError, BadInputError, NotFoundError, UnreachableError
from agent_layer.settings import load_settings

__all__ = ["build", "main"]

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2


def build() -> typer.Typer:
    """Put the command together from the parts of this package and those that other packages offer."""
    app = typer.Typer(
        name="agent-layer",
        help="Capture, store and dispatch agent rollouts for reinforcement learning.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    for point in entry_points(group="agent_layer.commands"):
        _load(point)(app)
    return app


def _load(point: EntryPoint) -> Callable[[typer.Typer], None]:
    """Load what adds a command; where an extra is not installed, a command that says so takes its place."""
    try:
        return point.load()
    except ModuleNotFoundError as error:
        missing = error.name

    def explain() -> None:
        raise BadInputError(
            f"{point.name}: expected the package {missing!r}, which is not installed; this command needs an extra,"
            " see [project.optional-dependencies] in pyproject.toml"
        )

    explain.__doc__ = f"Needs the package {missing!r}, which is not installed."
    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return lambda app: _add(app, point.name, explain, settings)


def _add(app: typer.Typer, name: str, command: Callable[[], None], settings: dict[str, bool]) -> None:
    app.command(name, context_settings=settings)(command)


def main() -> None:
    """Run the command. Exit 0: done; 1: ran and failed; 2: bad input or unreachable, with one sentence."""
    try:
        build()()
    except (BadInputError, UnreachableError, NotFoundError) as error:
        _say(error)
        sys.exit(EXIT_BAD_INPUT)
    except AgentLayerError as error:
        _say(error)
        sys.exit(EXIT_FAILED)


def _global_options(
    context: typer.Context,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", envvar="AGENT_LAYER_DIR", help="Where everything without a URL lives."),
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
    context.obj = load_settings(**({"dir": directory} if directory else {}))


def _say(error: AgentLayerError) -> None:
    typer.echo(f"agent-layer: {error}", err=True)
