"""This file holds the one command, ``agent-layer``: its global options, its parts, and how errors end it.

This file holds how ``agent-layer --help`` reads: commands in chapters, and examples below their options.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from agent_layer import __version__
from agent_layer.cli.commands import COMMANDS
from agent_layer.errors import AgentLayerError, BadInputError, NotFoundError, UnreachableError
from agent_layer.settings import load_settings

_CHAPTERS = {
    "Run agents": ("up", "submit", "work", "trace"),
    "Watch and steer": ("tasks", "rollouts", "groups", "runs", "workers", "dead"),
    "Ask and judge": ("query", "show", "summary", "reward", "rescore"),
    "Train": ("train", "replay", "demo"),
    "Look after the machines": ("doctor", "serve", "ingest", "engines", "store", "export"),
}
_OTHERS = "More"
_EMPTY_LINE = "\n\n"


def arrange(app: typer.Typer) -> None:
    """Put the commands into chapters, and let what they say of themselves fill the width of any terminal."""
    places = {name: chapter for chapter, names in _CHAPTERS.items() for name in names}
    order = list(places)
    for one in (*app.registered_commands, *app.registered_groups):
        one.rich_help_panel = places.get(_name(one), _OTHERS)
    app.registered_commands.sort(key=lambda one: order.index(_name(one)) if _name(one) in places else len(order))
    app.registered_groups.sort(key=lambda one: order.index(_name(one)) if _name(one) in places else len(order))
    _fill(app)


def _fill(app: typer.Typer) -> None:
    parts = [one.typer_instance for one in app.registered_groups if one.typer_instance is not None]
    callbacks = [part.registered_callback for part in parts if part.registered_callback is not None]
    for one in (*app.registered_commands, *callbacks):
        if (text := inspect.getdoc(one.callback)) is not None:
            one.help, one.epilog = (_EMPTY_LINE.join(lines) for lines in _parted(text))
    for part in parts:
        _fill(part)


def _parted(text: str) -> tuple[list[str], list[str]]:
    """Paragraphs, each in one line however wide the docstring is; and lines of examples: what begins with a command."""
    said: list[str] = []
    examples: list[str] = []
    for part in text.split(_EMPTY_LINE):
        lines = [line.strip() for line in part.splitlines()]
        if lines[0].startswith("agent-layer "):
            examples += lines
        else:
            said.append(" ".join(lines))
    return said, examples


def _name(one: object) -> str:
    name, callback = getattr(one, "name", None), getattr(one, "callback", None)
    return name if isinstance(name, str) else getattr(callback, "__name__", "").replace("_", "-")


_GROUP = "agent_layer.commands"
"""Entry points of plug-ins: each a function that adds commands to the typer application it is given."""

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_STOPPED = 130


def build() -> typer.Typer:
    """Put the command together from the parts of this package and those that other packages offer."""
    app = typer.Typer(
        name="agent-layer",
        help="Capture, store and dispatch agent rollouts for reinforcement learning.",
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    for name, place in COMMANDS.items():
        _load(EntryPoint(name, place, _GROUP))(app)
    for point in entry_points(group=_GROUP):
        _load(point)(app)
    arrange(app)
    return app


def _load(point: EntryPoint) -> Callable[[typer.Typer], None]:
    """Load what adds a command; where an extra is not installed, a command that says so takes its place."""
    try:
        return point.load()
    except ModuleNotFoundError as error:
        missing = error.name

    def explain() -> None:
        raise _missing(point.name, missing)

    explain.__doc__ = f"Needs the package {missing!r}, which is not installed."
    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return lambda app: _add(app, point.name, explain, settings)


def _missing(subject: str, package: str | None) -> BadInputError:
    return BadInputError(
        f"{subject}: expected the package {package!r}, which is not installed; it comes with an extra, see"
        " [project.optional-dependencies] in pyproject.toml"
    )


def _add(app: typer.Typer, name: str, command: Callable[[], None], settings: dict[str, bool]) -> None:
    app.command(name, context_settings=settings)(command)


def main() -> None:
    """Run the command. Exit 0: done; 1: ran and failed; 2: bad input or unreachable, with one sentence."""
    try:
        status = build()(_directory_first(sys.argv[1:]), standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except TyperException as error:
        words = " ".join(error.format_message().split())
        _say(BadInputError(f"{words.rstrip('.')}; add --help to see what this command takes"))
        sys.exit(EXIT_BAD_INPUT)
    except (BadInputError, UnreachableError, NotFoundError) as error:
        _say(error)
        sys.exit(EXIT_BAD_INPUT)
    except AgentLayerError as error:
        _say(error)
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:  # while commands were being loaded; later, typer ends them in the same way
        sys.exit(EXIT_STOPPED)
    except UnicodeEncodeError as error:  # the bytes of an argument that are no text come as lone surrogates
        _say(BadInputError(f"{error.object!r}: expected text in UTF-8, found other bytes; write it in UTF-8"))
        sys.exit(EXIT_BAD_INPUT)
    except ModuleNotFoundError as error:  # commands import what an extra brings when they run
        _say(_missing("this command", error.name))
        sys.exit(EXIT_BAD_INPUT)


def _directory_first(arguments: Sequence[str]) -> list[str]:
    """Let ``--dir`` stand anywhere before a ``--``: it is global, whichever command it is typed behind."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    ours, theirs = list(arguments[:end]), list(arguments[end:])
    if "--dir" not in ours[1:-1]:
        return [*ours, *theirs]
    at = ours.index("--dir")
    return [*ours[at : at + 2], *ours[:at], *ours[at + 2 :], *theirs]


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
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit
    context.obj = load_settings(**({"dir": directory} if directory else {}))


def _say(error: AgentLayerError) -> None:
    typer.echo(f"agent-layer: {error}", err=True)
