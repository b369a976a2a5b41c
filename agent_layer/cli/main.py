"""The command ``agent-layer``: its global options, its commands and plug-ins, and the exit status of errors."""

import atexit
import errno
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from agent_layer import __version__, settings
from agent_layer.cli.commands import PANELS, Command
from agent_layer.cli.interrupts import EXIT_STOPPED
from agent_layer.cli.loader import DeferredCommand, missing_package
from agent_layer.cli.overview import draw_overview
from agent_layer.errors import AgentLayerError, BadInputError, NotFoundError, UnreachableError

_PLUGINS = "agent_layer.commands"
"""Entry points: the name of a command, and a function or a ``typer.Typer`` that is loaded when it is called."""
_PLUGIN_PANEL = "More"

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2

_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""Refusals that are no fault of the command line: the command ran, and failed."""


class _Commands(TyperGroup):
    """Our commands and those of plug-ins; each is imported when it is called."""

    def __init__(self, **attributes: object) -> None:
        super().__init__(**attributes)  # pyright: ignore[reportArgumentType]  # as typer passes them
        for commands in PANELS.values():
            for command in commands:
                self.add_command(DeferredCommand(command))

    def list_commands(self, ctx: typer.Context) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]  # typer hides the type of its context
        """Return the names of our commands, then those of plug-ins."""
        self._add_plugins()
        return super().list_commands(ctx)  # pyright: ignore[reportArgumentType]

    def get_command(self, ctx: typer.Context, cmd_name: str) -> TyperCommand | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return a command that is imported when it parses its arguments; None: the name is unknown."""
        if cmd_name not in self.commands:
            self._add_plugins()
        return super().get_command(ctx, cmd_name)  # pyright: ignore[reportArgumentType, reportReturnType]

    def format_help(self, ctx: typer.Context, formatter: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  # noqa: ARG002  # it is printed at once, as typer does
        """Print the table of commands."""
        more = [self.commands[name] for name in self._add_plugins()]
        plugins = {_PLUGIN_PANEL: tuple(one.declared for one in more if isinstance(one, DeferredCommand))}
        draw_overview(self, ctx, {**PANELS, **(plugins if more else {})})

    def _add_plugins(self) -> list[str]:
        """Add the commands that other packages declare, by name; return their names."""
        ours = {command.name for commands in PANELS.values() for command in commands}
        points = [point for point in entry_points(group=_PLUGINS) if point.name not in ours]
        for point in points:
            package = point.dist.name if point.dist else point.value
            self.add_command(DeferredCommand(Command(point.name, f"Command of the package {package}.", point.value)))
        return [point.name for point in points]


def build() -> typer.Typer:
    """Return the application; its commands are imported when they are called."""
    app = typer.Typer(
        name="agent-layer",
        cls=_Commands,
        help="Capture, store and dispatch agent rollouts for reinforcement learning.",
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    return app


def main() -> None:
    """Run the command. Exit 0: done; 1: ran and failed; 2: bad input or unreachable, with one sentence."""
    # a write to what the starter closed then fails as to any file that cannot be written
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  # as Python leaves it for a closed one
        os.dup2(os.open(os.devnull, os.O_RDONLY), 1)
        sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115  # open until the process ends
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    status = _run(_directory_first(sys.argv[1:]))
    try:
        sys.stdout.flush()
    except OSError as error:
        status = _report_os_error(error)
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun's: a thread of torch that needs an interpreter that ends aborts
        try:
            atexit._run_exitfuncs()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # as at any end
            sys.stdout.flush()
        finally:
            os._exit(status)
    sys.exit(status)


def _run(arguments: Sequence[str]) -> int:  # noqa: PLR0911  # one for each way to end
    """Run the command; return its exit status, after one sentence if it failed."""
    try:
        status = build()(arguments, standalone_mode=False)
    except TyperException as error:
        words = " ".join(error.format_message().split())
        return _report(BadInputError(f"{words.rstrip('.')}; add --help to see what this command takes"), EXIT_BAD_INPUT)
    except (BadInputError, UnreachableError, NotFoundError) as error:
        return _report(error, EXIT_BAD_INPUT)
    except AgentLayerError as error:
        return _report(error, EXIT_FAILED)
    except KeyboardInterrupt:  # outside of a command; inside, typer ends it in the same way
        return EXIT_STOPPED
    except UnicodeEncodeError as error:  # bytes of an argument that are not UTF-8 arrive as lone surrogates
        found = f"{error.object!r}: expected text in UTF-8, found other bytes; write it in UTF-8"
        return _report(BadInputError(found), EXIT_BAD_INPUT)
    except ModuleNotFoundError as error:  # some commands import what an extra brings when they run
        return _report(missing_package("this command", error.name), EXIT_BAD_INPUT)
    except OSError as error:
        return _report_os_error(error)
    return status if isinstance(status, int) else 0


def _report(error: AgentLayerError, status: int) -> int:
    typer.echo(f"agent-layer: {error}", err=True)
    return status


def _report_os_error(error: OSError) -> int:
    """Report what the operating system refused; a reader that has closed the pipe needs no word."""
    error = _output_error() or error
    if isinstance(error, BrokenPipeError):
        return EXIT_FAILED
    is_output = error.filename is None and error.errno in _CANNOT_WRITE
    subject = "output" if is_output else error.filename or "this command"
    remedy = "make room, or send it elsewhere" if is_output else "check the path and its permissions"
    found = error.strerror or type(error).__name__
    refusal = UnreachableError(f"{subject}: expected the operating system to allow it, found {found!r}; {remedy}")
    return _report(refusal, EXIT_FAILED if error.errno in _CANNOT_WRITE else EXIT_BAD_INPUT)


def _output_error() -> OSError | None:
    """Return why standard output takes no more, and drop what is left for it; None: it takes everything."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python's own last flush fails, too
        return error
    return None


def _directory_first(arguments: Sequence[str]) -> list[str]:
    """Move ``--dir`` to the front, from anywhere before a ``--``: it is global, whichever command it follows."""
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
        typer.Option("--dir", envvar="AGENT_LAYER_DIR", help="Directory of everything that has no URL."),
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit
    context.obj = settings.load_settings(**({"dir": directory} if directory else {}))
