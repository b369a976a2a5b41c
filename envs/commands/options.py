"""Options of the command line that say how a command runs as an agent: ``work -- COMMAND``, ``eval -- COMMAND``."""

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
import typer

from agent_layer.errors import BadInputError
from agent_layer.schema.sandbox import SandboxSpec, check_spec
from envs.commands.boxed import BOX_RESOURCES
from envs.commands.plan import CommandOptions
from envs.sandbox import list_kind_names

_PANEL: Final = "Options of COMMAND and --harness"
_WORKDIR: Final = "/attempt"
"""Working directory in a box: a name that hosts do not use, so that any folder can be mounted."""
_WITHOUT_A_NETWORK_OF_ITS_OWN: Final = ("process",)

WorkdirOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--workdir",
        metavar="DIR|REPO@COMMIT",
        help="Each attempt begins in a copy of this directory, or commit; else its directory is empty.",
        rich_help_panel=_PANEL,
    ),
]
HomeOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--home", metavar="DIR", help="The same for its HOME.", rich_help_panel=_PANEL),
]
ShareWorkdirOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--share-workdir",
        help="Run all attempts here, with your HOME: they meet each other's files.",
        rich_help_panel=_PANEL,
    ),
]
KeepWorkdirOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--keep-workdir",
        metavar="DIR",
        help="Leave the directories of attempts below this one, to look into.",
        rich_help_panel=_PANEL,
    ),
]
ArtifactsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--artifact",
        metavar="PATTERN",
        help="Files to store for scorers, such as 'out/**', where a task names none; may be repeated.",
        rich_help_panel=_PANEL,
    ),
]
DiffOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--diff",
        metavar="NAME",
        help="Store what changed in the working directory, as git diff prints it, under this name.",
        rich_help_panel=_PANEL,
    ),
]
BoxOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--box",
        metavar="KIND",
        help="Run in a sandbox (session, oci, docker, …) that reaches the rollout's model, and nothing else.",
        rich_help_panel=_PANEL,
    ),
]
BoxMemoryOption: TypeAlias = Annotated[
    int,
    typer.Option("--box-memory", min=64, metavar="MB", help="Memory of the sandbox.", rich_help_panel=_PANEL),
]
MountsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--mount",
        metavar="DIR",
        help="Folder that the sandbox sees, read-only; its bin is on PATH. May be repeated.",
        rich_help_panel=_PANEL,
    ),
]
BOX_MEMORY_MB: Final = BOX_RESOURCES.memory_mb


def make_command_options(  # noqa: PLR0913  # as many as the command line has
    *,
    workdir: str | None,
    home: str | None,
    share_workdir: bool,
    keep_workdir: str | None,
    artifacts: Sequence[str] | None,
    diff: str | None,
    box: str | None,
    box_memory: int,
    mounts: Sequence[str] | None,
) -> CommandOptions:
    """Return what the options of a command line ask for.

    Raises: BadInputError: they contradict each other, or no sandbox can be as they ask.
    """
    own = [
        name for name, value in (("--workdir", workdir), ("--home", home), ("--keep-workdir", keep_workdir)) if value
    ]
    own += [name for name, value in (("--artifact", artifacts), ("--diff", diff), ("--box", box)) if value]
    if share_workdir and own:
        raise BadInputError(
            f"command: {own[0]} is for attempts with directories of their own; leave it or --share-workdir out"
        )
    if mounts and box is None:
        raise BadInputError("command: expected --box KIND beside --mount, found none; without it all folders are seen")
    if box is None and box_memory != BOX_MEMORY_MB:
        raise BadInputError("command: expected --box KIND beside --box-memory, found none; only it has a limit")
    if box is not None and keep_workdir is not None:
        raise BadInputError(
            "command: expected --keep-workdir without --box, whose files end with it; name what to keep with --artifact"
        )
    if diff is not None and ("/" in diff or diff in (".", "..")):
        raise BadInputError(f"command: expected --diff as the name of a file, found {diff!r}; write one without '/'")
    return CommandOptions(
        workdir=workdir,
        home=home,
        is_shared=share_workdir,
        keep=keep_workdir,
        artifacts=list(artifacts or []),
        diff=diff,
        box=None if box is None else _make_spec(box, box_memory, list(mounts or [])),
    )


def _make_spec(kind: str, memory_mb: int, mounts: list[str]) -> SandboxSpec:
    known = [name for name in list_kind_names() if name not in _WITHOUT_A_NETWORK_OF_ITS_OWN]
    if kind not in known:
        raise BadInputError(
            f"command: expected --box as one of {', '.join(known)}, found {kind!r}; 'agent-layer sandbox doctor' shows"
            " what works here"
        )
    resources = msgspec.structs.replace(BOX_RESOURCES, memory_mb=memory_mb)
    return check_spec(SandboxSpec(kind=kind, workdir=_WORKDIR, resources=resources, mounts=mounts))


def as_arguments(options: CommandOptions) -> list[str]:
    """Return the options as a worker's command line has them; ``make_command_options`` reads them back."""
    box = options.box
    named = {
        "--workdir": options.workdir,
        "--home": options.home,
        "--keep-workdir": options.keep,
        "--diff": options.diff,
        "--box": None if box is None else box.kind,
        "--box-memory": None if box is None else str(box.resources.memory_mb),
    }
    arguments = [f"{name}={value}" for name, value in named.items() if value is not None]
    arguments += [f"--artifact={pattern}" for pattern in options.artifacts]
    arguments += [f"--mount={place}" for place in (box.mounts if box is not None else [])]
    return [*arguments, *(["--share-workdir"] if options.is_shared else [])]
