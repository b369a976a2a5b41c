"""Options of the command line that say how a command or a harness runs as an agent: those of work, eval and train."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Final, TypeAlias

import msgspec
import typer

from agent_layer.errors import BadInputError
from agent_layer.schema.sandbox import SandboxSpec, check_spec
from envs.commands.boxed import BOX_RESOURCES, list_box_kinds
from envs.commands.plan import CommandOptions

_PANEL: Final = "Options of COMMAND and --harness"
_WORKDIR: Final = "/attempt"
"""Working directory in a box: a name that hosts do not use, so that any folder can be mounted."""
_AUTO, _NONE = "auto", "none"
_FLAGS: Final = "flags"
"""Parameter of commands that take the options as one record."""


def _option(name: str, description: str, metavar: str | None = None) -> object:
    return typer.Option(name, metavar=metavar, help=description, rich_help_panel=_PANEL)


BoxOption: TypeAlias = Annotated[
    str | None,
    _option(
        "--box",
        "Run in a sandbox (auto, session, oci, docker, …) that reaches the rollout's model, and nothing else; none:"
        " with your rights. Else auto for --harness, none for COMMAND.",
        "KIND",
    ),
]


class CommandFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The options, as typed; a field is an option."""

    harness: Annotated[str | None, typer.Option(help="An installed coding agent, see 'agent-layer harnesses'.")] = None
    workdir: Annotated[
        str | None,
        _option(
            "--workdir",
            "Each attempt begins in a copy of this directory, or commit; else its directory is empty.",
            "DIR|REPO@COMMIT",
        ),
    ] = None
    home: Annotated[str | None, _option("--home", "The same for its HOME.", "DIR")] = None
    share_workdir: Annotated[
        bool, _option("--share-workdir", "Run all attempts here, with your HOME: they meet each other's files.")
    ] = False
    keep_workdir: Annotated[
        str | None,
        _option("--keep-workdir", "Leave the directories of attempts below this one, to look into.", "DIR"),
    ] = None
    artifacts: Annotated[
        list[str] | None,
        _option(
            "--artifact",
            "Files to store for scorers, such as 'out/**', where a task names none; may be repeated.",
            "PATTERN",
        ),
    ] = None
    diff: Annotated[
        str | None,
        _option(
            "--diff", "Store what changed in the working directory, as git diff prints it, under this name.", "NAME"
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        _option(
            "--env",
            "Variable of this process that attempts get, which else see no secret of it; may be repeated.",
            "NAME",
        ),
    ] = None
    box: BoxOption = None
    box_memory: Annotated[
        int | None,
        typer.Option(
            "--box-memory",
            min=64,
            metavar="MB",
            help=f"Memory of the sandbox; {BOX_RESOURCES.memory_mb} by default.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    mounts: Annotated[
        list[str] | None,
        _option("--mount", "Folder that the sandbox sees, read-only; its bin is on PATH. May be repeated.", "DIR"),
    ] = None

    def read(self, *, is_harness: bool) -> CommandOptions:
        """Return what they ask for.

        Args: is_harness: attempts have a box unless the options say otherwise.

        Raises: BadInputError: they contradict each other, or no sandbox can be as they ask.
        """
        box = self.box or (_AUTO if is_harness and not self.share_workdir else _NONE)
        is_boxed = box != _NONE
        own = {"--workdir": self.workdir, "--home": self.home, "--keep-workdir": self.keep_workdir}
        own |= {"--artifact": self.artifacts, "--diff": self.diff, "--box": is_boxed}
        if self.share_workdir and (named := [name for name, value in own.items() if value]):
            raise BadInputError(
                f"command: {named[0]} is for attempts with directories of their own; leave it or --share-workdir out"
            )
        limits = {"--mount": self.mounts, "--box-memory": self.box_memory}
        if not is_boxed and (named := [name for name, value in limits.items() if value]):
            raise BadInputError(
                f"command: expected --box KIND beside {named[0]}, found none; without a sandbox all folders are seen,"
                " and memory has no limit"
            )
        if is_boxed and self.keep_workdir is not None:
            raise BadInputError(
                "command: expected --keep-workdir without a sandbox, whose files end with it; name what to keep with"
                " --artifact, or add --box none, which runs with your rights"
            )
        if self.diff is not None and ("/" in self.diff or self.diff in (".", "..")):
            raise BadInputError(
                f"command: expected --diff as the name of a file, found {self.diff!r}; write one without '/'"
            )
        return CommandOptions(
            workdir=self.workdir,
            home=self.home,
            is_shared=self.share_workdir,
            keep=self.keep_workdir,
            artifacts=self.artifacts or [],
            diff=self.diff,
            env=self.env or [],
            box=_make_spec(box, self.box_memory, self.mounts or []) if is_boxed else None,
            is_unboxed=self.box == _NONE,
        )


def take_command_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of ``CommandFlags``, in place of its parameter ``flags``."""
    signature = inspect.signature(command)
    options = inspect.signature(CommandFlags).parameters
    own = [one for name, one in signature.parameters.items() if name != _FLAGS]

    @wraps(command)
    def run(**given: object) -> None:
        flags = CommandFlags(**{name: given.pop(name) for name in options})  # pyright: ignore[reportArgumentType]  # typer read them by these types
        command(**given, **{_FLAGS: flags})

    shown = signature.replace(parameters=[*own, *options.values()])
    run.__signature__ = shown  # pyright: ignore[reportAttributeAccessIssue]  # as inspect.signature reads it
    run.__annotations__ = {name: one.annotation for name, one in shown.parameters.items()}
    return run


def make_box_spec(kind: str | None = None) -> SandboxSpec:
    """Return the sandbox of a command.

    Args: kind: None: the best that works where the worker runs.
    """
    return SandboxSpec(kind=kind, workdir=_WORKDIR, resources=BOX_RESOURCES)


def _make_spec(kind: str, memory_mb: int | None, mounts: list[str]) -> SandboxSpec:
    known = [_AUTO, _NONE, *list_box_kinds()]
    if kind not in known:
        raise BadInputError(
            f"command: expected --box as one of {', '.join(known)}, found {kind!r}; 'agent-layer sandbox doctor' shows"
            " what works here"
        )
    spec = make_box_spec(None if kind == _AUTO else kind)
    resources = msgspec.structs.replace(spec.resources, memory_mb=memory_mb or spec.resources.memory_mb)
    return check_spec(msgspec.structs.replace(spec, resources=resources, mounts=mounts))


def as_arguments(options: CommandOptions) -> list[str]:
    """Return the options as a worker's command line has them; ``CommandFlags.read`` reads them back.

    Raises: BadInputError: they ask for a sandbox for which it has no words.
    """
    box, plain = options.box, SandboxSpec()
    if box is not None and (lost := [one for one in ("image", "env") if getattr(box, one) != getattr(plain, one)]):
        raise BadInputError(
            f"command: expected a sandbox without {lost[0]}, for which a worker's command line has no option; name it"
            " in the 'sandbox' of each task"
        )
    named = {
        "--workdir": options.workdir,
        "--home": options.home,
        "--keep-workdir": options.keep,
        "--diff": options.diff,
        "--box": (_NONE if options.is_unboxed else None) if box is None else box.kind or _AUTO,
        "--box-memory": None if box is None else str(box.resources.memory_mb),
    }
    arguments = [f"{name}={value}" for name, value in named.items() if value is not None]
    arguments += [f"--artifact={pattern}" for pattern in options.artifacts]
    arguments += [f"--env={name}" for name in options.env]
    arguments += [f"--mount={place}" for place in (box.mounts if box is not None else [])]
    return [*arguments, *(["--share-workdir"] if options.is_shared else [])]
