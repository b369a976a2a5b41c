"""Commands that are imported when they are called; until then their name and summary stand for them."""

import inspect
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

import typer
from typer.core import TyperCommand, TyperGroup

from agent_layer.cli.commands import Command
from agent_layer.cli.interrupts import ending_at_interrupt
from agent_layer.errors import BadInputError

_EMPTY_LINE = "\n\n"
_OTHER_PACKAGES = ("envs", "tracer", "trainer_adapter")
"""Ours beside agent_layer; a folder of a user may have the same name."""


class _Loaded(Protocol):
    """Part of a command that a deferred one calls; typer hides the common class of commands and groups."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: typer.Context | None = None, **extra: object
    ) -> typer.Context:
        """Parse the arguments."""
        ...


class DeferredCommand(TyperCommand):
    """A line of the table of commands. Parsing its arguments imports the command and hands them to it."""

    def __init__(self, command: Command) -> None:
        super().__init__(command.name, help=command.summary)
        self.declared = command

    def load(self) -> TyperCommand | TyperGroup:
        """Import the command.

        Raises: BadInputError: it needs a package that is not installed.
        """
        return load_command(self.declared)

    def make_context(  # pyright: ignore[reportIncompatibleMethodOverride]  # typer hides the type of its context
        self, info_name: str | None, args: list[str], parent: typer.Context | None = None, **extra: object
    ) -> typer.Context:
        """Parse the arguments of the real command."""
        return cast("_Loaded", self.load()).make_context(info_name, args, parent, **extra)


def load_command(command: Command) -> TyperCommand | TyperGroup:
    """Import a command; the parts of a group stay deferred.

    Raises: BadInputError: it needs a package that is not installed, or that a folder of the user shadows.
    """
    if command.target.startswith(_OTHER_PACKAGES):
        _check_packages(command.name)
    try:
        found = _import_target(command.target) if command.target else None
    except ModuleNotFoundError as error:
        raise missing_package(command.name, error.name) from error
    if isinstance(found, typer.Typer):
        app = found
    else:
        app = typer.Typer(add_completion=False)
        if not command.parts:
            app.command(command.name)(found)  # pyright: ignore[reportArgumentType]  # a function, by the table
        elif found is None:
            app = typer.Typer(add_completion=False, help=command.summary, no_args_is_help=True)
            app.callback()(lambda: None)
        else:
            app.callback(invoke_without_command=True)(found)  # pyright: ignore[reportArgumentType]
    _fill_help(app)
    loaded = cast("TyperCommand | TyperGroup", typer.main.get_command(app))
    loaded.name = command.name
    if isinstance(loaded, TyperGroup):
        for part in command.parts:
            loaded.add_command(DeferredCommand(part))
    return loaded


def missing_package(subject: str, package: str | None) -> BadInputError:
    """Return the error of a command that needs an extra."""
    from agent_layer.infra import find_extra, install_command  # noqa: PLC0415  # '--help' needs no metadata

    extra = find_extra(package) if package else None
    remedy = install_command(extra) if extra else "install the distribution that has it"
    return BadInputError(f"{subject}: needs the package {package!r}, which is not installed; {remedy}")


def _check_packages(subject: str) -> None:  # kept: the reason for the check is its docstring
    """Check that Python imports our packages.

    Raises: BadInputError: a folder of the same name comes first; without this, its missing modules would be the error.
    """
    home = Path(__file__).parents[2].resolve()
    for package in _OTHER_PACKAGES:
        spec = find_spec(package)
        places = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
        if places and places[0].resolve().parent != home:
            raise BadInputError(
                f"{subject}: the folder {places[0]} shadows our package {package!r}, because it comes first on Python's"
                " path; rename it, or start the command in another directory"
            )


def _import_target(target: str) -> object:
    module, _, name = target.partition(":")
    with ending_at_interrupt():
        return getattr(import_module(module), name)


def _fill_help(app: typer.Typer) -> None:  # kept: load_command is a list of named steps
    """Join the lines of each paragraph, so that help fills any terminal, and move examples below the options."""
    callback = app.registered_callback
    for one in (*app.registered_commands, *([callback] if callback else [])):
        if (text := inspect.getdoc(one.callback)) is not None:
            one.help, one.epilog = (_EMPTY_LINE.join(lines) for lines in _split_examples(text))


def _split_examples(text: str) -> tuple[list[str], list[str]]:
    """Return paragraphs, each as one line; and lines of examples, from paragraphs that begin with a command."""
    paragraphs: list[str] = []
    examples: list[str] = []
    for part in text.split(_EMPTY_LINE):
        lines = [line.strip() for line in part.splitlines()]
        if lines[0].startswith("agent-layer "):
            examples += lines
        else:
            paragraphs.append(" ".join(lines))
    return paragraphs, examples
