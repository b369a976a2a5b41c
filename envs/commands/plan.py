"""A command as an agent: the place of one attempt, the plan of what runs there, and how it ended."""

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import msgspec

from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.schema import UNREADABLE, JsonObject, Limits, TaskView
from agent_layer.schema.sandbox import SandboxSpec

_PROMPT_KEYS = ("prompt", "instruction", "question")
_MAX_ERROR_LENGTH = 2000


class CommandPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where one attempt of a command runs: paths and addresses as the command itself sees them."""

    task: TaskView
    base_url: str
    """Address of its model for the protocols of OpenAI; it ends in ``/v1``."""
    api_key: str
    """Opens the calls of this attempt, and nothing else."""
    model: str
    home: str
    """Its HOME, empty but for a template's files."""
    workdir: str
    """Its working directory."""
    is_boxed: bool
    """Whether it runs in a sandbox, which reaches the model and nothing else."""

    @property
    def anthropic_url(self) -> str:
        """Address of its model for Anthropic's protocol, whose clients add ``/v1`` themselves."""
        return self.base_url.removesuffix("/v1")

    @property
    def prompt(self) -> str:
        """The question of the task: its input if that is a text, the text below ``prompt``, ``instruction`` or
        ``question`` of an object, else the input as JSON.

        Raises: BadInputError: the input is empty.
        """
        found: object = self.task.input
        if isinstance(found, dict):
            fields = cast("dict[str, object]", found)
            found = next(
                (fields[key] for key in _PROMPT_KEYS if isinstance(fields.get(key), str)), cast("object", fields)
            )
        if found in (None, "", [], {}):
            raise BadInputError(
                f"task {self.task.id!r}: expected a question as its input, found {found!r}; write a text, or an object"
                f" with one of {', '.join(_PROMPT_KEYS)}"
            )
        return found if isinstance(found, str) else msgspec.json.encode(found).decode()


class CommandPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What runs in one attempt, and what it finds there."""

    argv: list[str]
    """Program, found on PATH, and its arguments."""
    env: dict[str, str | None] = {}
    """Variables beside those of every command, over which they win; None: the variable is unset."""
    home_files: dict[str, str] = {}
    """Texts of files by their path below HOME, such as a program's configuration."""
    files: dict[str, str] = {}
    """Texts of files by their path below the working directory, beside a template's and the task's own."""
    stdin: str = ""
    """What it reads; then its standard input ends."""


class CommandEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended."""

    name: str
    exit_code: int | None
    """None: a signal ended it."""
    signal: int | None = None
    stdout: str
    """Its end, of at most 64 KiB."""
    stderr: str
    """Its end, of at most 64 KiB."""


class CommandOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every attempt of a command."""

    workdir: str | None = None
    """Template of the working directory: a directory, or ``REPOSITORY@COMMIT``; None: it begins empty."""
    home: str | None = None
    """Directory that is the template of HOME; None: it begins empty."""
    is_shared: bool = False
    """All attempts run in the directory in which the worker started, with its user's HOME."""
    keep: str | None = None
    """Directory in which those of attempts stay, by trajectory; None: they are removed."""
    artifacts: list[str] = []
    """Files and folders below the working directory, or patterns of them, for tasks that name none."""
    diff: str | None = None
    """Name of the artifact that holds what changed in the working directory, as ``git diff`` prints it."""
    box: SandboxSpec | None = None
    """Sandbox in which attempts run, for tasks that ask for none of their own. None: a harness runs in one of the best
    kind that works here, a command on the host."""
    is_unboxed: bool = False
    """A harness runs on the host, too."""
    env: list[str] = []
    """Variables of the worker that attempts get beside the usual ones: secrets, or any variable in a sandbox."""


class TaskDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent needs of its tasks; what a task names itself wins, field by field."""

    sampling: JsonObject = {}
    """What takes the place of the agent's own sampling in tasks for training."""
    limits: Limits = Limits()


PlanCommand: TypeAlias = Callable[[CommandPlace], CommandPlan]
"""Returns what runs in an attempt; called once for each, when its place is there."""
ReadResult: TypeAlias = Callable[[CommandEnd], object]
"""Returns the result of an attempt, a JSON value; raises ``AgentFailedError`` where the program failed."""


def plan_always(argv: Sequence[str]) -> PlanCommand:
    """Return a plan that runs these arguments in every attempt."""
    plan = CommandPlan(argv=list(argv))
    return lambda _: plan


def read_last_line(end: CommandEnd) -> object:
    """Return the last line of standard output, parsed as JSON where possible; None: there is none.

    Raises: AgentFailedError: its exit status is not 0.
    """
    if end.exit_code != 0:
        status = f"status {end.exit_code}" if end.exit_code is not None else f"signal {end.signal}"
        raise AgentFailedError(f"command {end.name!r}: exited with {status}: {end.stderr[-_MAX_ERROR_LENGTH:].strip()}")
    if not (lines := end.stdout.strip().splitlines()):
        return None
    try:
        return msgspec.json.decode(lines[-1])
    except (*UNREADABLE, UnicodeEncodeError):
        return lines[-1]
