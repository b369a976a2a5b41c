"""Tasks before they are queued: read from a file, checked against bounds, compared with what was asked before.

A task that repeats an input of the same run and split is kept, left out or refused, as the caller chooses.
"""

import codecs
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import (
    NOT_SAMPLING,
    History,
    JsonObject,
    ShortGroupPolicy,
    Split,
    Task,
    WallFault,
    check_name,
    check_side_calls,
    check_storable,
    content_hash,
    hash_input,
)
from agent_layer.schema.sandbox import HOST_IMAGE, Isolation, check_spec
from agent_layer.settings import Settings

_MAX_ID_LENGTH = 96
"""Leaves room for what group, member and attempt add."""
_HASH_LETTERS = 12
"""Number of letters of a line's hash, which is the id of a task without a name."""
_MAX_GROUP_SIZE = 4096
_MAX_PRIORITY = 1000
_PRIORITIES: dict[Split, int] = {"train": 0, "eval": -1}
"""Priority of tasks that name none: evaluation must not delay training."""
_MAX_VERSION = 1 << 31
_MAX_SECONDS = 30 * 86_400
_DEEPEST = 256
"""Nested lists and objects. Readers take about 1,000, less the depth of their own calls."""


class _Strict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Parent of records that a person types: a misspelt field is an error, not an ignored field."""


class _RewardLine(_Strict, frozen=True):
    weight: float = 1.0
    required: bool = True


class _LimitsLine(_Strict, frozen=True):
    wall_seconds: float | None = None
    wall_fault: WallFault = "auto"
    turns: int | None = None
    tokens: int | None = None
    idle_seconds: float | None = None
    score_seconds: float | None = None
    sandbox_seconds: float | None = None
    context_tokens: int | None = None
    observation_tokens: int | None = None


class _SideCallLine(_Strict, frozen=True):
    name: str = "declared"
    system: str | None = None
    prompt: str | None = None
    model: str | None = None
    agent: str | None = None
    has_tools: bool | None = None


class _ResourcesLine(_Strict, frozen=True):
    cpus: float = 1.0
    memory_mb: int = 512
    disk_mb: int = 256
    processes: int = 64
    files: int = 4096
    open_files: int = 256


class _SandboxLine(_Strict, frozen=True):
    kind: str | None = None
    isolation: Isolation = "namespace"
    image: str = HOST_IMAGE
    workdir: str = "/work"
    env: dict[str, str] = {}
    resources: _ResourcesLine = _ResourcesLine()


class _TaskLine(_Strict, frozen=True):
    input: object
    id: str | None = None
    task_type: str = "default"
    grading: object = None
    env: str | None = None
    agent: str | None = None
    scorer: str | None = None
    rewards: dict[str, _RewardLine] = {}
    group_size: int | None = None
    launch: int | None = None
    partial: ShortGroupPolicy = "deliver"
    sampling: JsonObject = {}
    side_calls: list[_SideCallLine | str] = []
    limits: _LimitsLine = _LimitsLine()
    priority: int | None = None
    needs: list[str] = []
    from_policy: int | None = None
    expected_seconds: float | None = None
    seed: int | None = None
    sampling_seed: int | None = None
    labels: dict[str, str] = {}
    sandbox: _SandboxLine | None = None
    files: dict[str, str] = {}
    artifacts: list[str] = []
    history: History = "full"
    calls_optional: bool = False


class TaskName(NamedTuple):
    """What a line of a tasks file says of its task before the task is made."""

    id: str
    labels: dict[str, str]
    agent: str | None
    scorer: str | None


class TaskWithOrigin(NamedTuple):
    """A task, and the file and line that it comes from."""

    task: Task
    place: str


def read_tasks(path: Path, *, run: str, split: Split = "train", group_size: int | None = None) -> list[Task]:
    """Read a file of tasks; see ``read_placed_tasks``."""
    return [one.task for one in read_placed_tasks(path, run=run, split=split, group_size=group_size)]


def read_placed_tasks(
    path: Path, *, run: str, split: Split = "train", group_size: int | None = None
) -> list[TaskWithOrigin]:
    """Read a file of tasks, one JSON object on each line.

    Args:
        path: the file.
        run: run of all tasks.
        split: split of all tasks.
        group_size: of all tasks; None: the size that each line names, else 1.

    Raises: BadInputError: there is no such file, or a line is no task; the error names the line.
    """
    try:
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    except OSError as error:
        raise BadInputError(f"tasks file {path}: expected a readable file, found {error}; check the path") from error
    return _parse_lines(lines, subject=str(path), run=run, split=split, group_size=group_size)


def parse_tasks(
    lines: Iterable[bytes], *, subject: str, run: str, split: Split = "train", group_size: int | None = None
) -> list[Task]:
    """Read tasks from lines; empty ones are left out. See ``read_tasks``."""
    return [one.task for one in _parse_lines(lines, subject=subject, run=run, split=split, group_size=group_size)]


def _parse_lines(
    lines: Iterable[bytes], *, subject: str, run: str, split: Split, group_size: int | None
) -> list[TaskWithOrigin]:
    tasks: list[TaskWithOrigin] = []
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{subject} line {number}"
        task = check_task(_parse(line.strip(), where, run, split, group_size), where)
        if task.id in numbers:
            raise BadInputError(
                f"{where}: expected a task that is not in the file yet, found the id {task.id!r} of line"
                f" {numbers[task.id]}; give each task its own id, and raise group_size for more rollouts of one"
            )
        numbers[task.id] = number
        tasks.append(TaskWithOrigin(task, where))
    if not tasks:
        raise BadInputError(f"{subject}: expected at least one task, found none; write one JSON object on each line")
    return tasks


def task_line(task: Task) -> bytes:
    """Return a line of a tasks file that runs a task again: without its run, its split, and the version it began at."""
    fields = msgspec.to_builtins(task)
    kept = (name for name in _TaskLine.__struct_fields__ if name != "from_policy")
    return msgspec.json.encode({name: fields[name] for name in kept if fields.get(name) is not None}) + b"\n"


def read_task_name(line: bytes, place: str) -> TaskName:
    """Return id, labels and agent of the task on a line; much quicker than to make and check the task.

    Args:
        line: one line of a tasks file.
        place: file and number of the line, for the error.

    Raises: BadInputError: the line is no JSON object with the fields of a task.
    """
    fields = _decode(line.strip(), place)
    return TaskName(fields.id or _name_line(line.strip()), fields.labels, fields.agent, fields.scorer)


def read_task(line: bytes, place: str, *, run: str, split: Split = "train") -> Task:
    """Return the task on a line; see ``read_task_name``.

    Raises: BadInputError: the line is no task, or one that cannot be queued.
    """
    return check_task(_parse(line.strip(), place, run, split, None), place)


def check_task(task: Task, subject: str | None = None) -> Task:
    """Return the task if it can be queued.

    Raises: BadInputError: a name cannot stand in keys and addresses, or a number is out of bounds.
    """
    where = subject or f"task {task.id!r}"
    check_name(task.run, f"{where}: run")
    for what, names in {
        "id": [task.id],
        "task_type": [task.task_type],
        "agent": [task.agent] if task.agent is not None else [],
        "env": [task.env] if task.env is not None else [],
        "needs": task.needs,
    }.items():
        for name in names:
            check_name(name, f"{where}: {what}")
    _check_bounds(where, "length of the id", len(task.id), 1, _MAX_ID_LENGTH)
    _check_bounds(where, "group_size", task.group_size, 1, _MAX_GROUP_SIZE)
    _check_bounds(where, "launch", num_launched(task), task.group_size, _MAX_GROUP_SIZE)
    _check_bounds(where, "priority", task.priority, -_MAX_PRIORITY, _MAX_PRIORITY)
    _check_bounds(where, "from_policy", task.from_policy or 0, 0, _MAX_VERSION)
    _check_bounds(where, "expected_seconds", task.expected_seconds or 1, 0, _MAX_SECONDS)
    for name, value in {
        "wall_seconds": task.limits.wall_seconds,
        "idle_seconds": task.limits.idle_seconds,
        "score_seconds": task.limits.score_seconds,
        "sandbox_seconds": task.limits.sandbox_seconds,
        "turns": task.limits.turns,
        "tokens": task.limits.tokens,
        "context_tokens": task.limits.context_tokens,
        "observation_tokens": task.limits.observation_tokens,
    }.items():
        if value is not None and not value > 0:
            raise BadInputError(f"{where}: expected limits.{name} above 0, found {value:g}; correct it or leave it out")
    _check_sandbox(where, task)
    check_side_calls(task.side_calls, where)
    if fixed := NOT_SAMPLING.intersection(task.sampling):
        raise BadInputError(
            f"{where}: expected sampling to name what shapes an answer, found {', '.join(sorted(fixed))}, which the"
            " agent or the gateway decides; leave it out"
        )
    for what, value in {"input": task.input, "grading": task.grading, "sampling": task.sampling}.items():
        _check_depth(value, f"{where}: {what}")
    check_storable(task, where)
    return task


def num_launched(task: Task) -> int:
    """Return the number of rollouts with which the task begins."""
    return task.group_size if task.launch is None else task.launch


def check_lifetime(task: Task, settings: Settings, subject: str | None = None) -> None:
    """Check that start, agent, scorer and grace fit into the lifetime of the task's sandbox.

    Args:
        task: with its limits.
        settings: longest start and grace, and the limit of scorers for tasks that name none.
        subject: where the task comes from; None: its id is enough.

    Raises: BadInputError: they do not.
    """
    limits, where = task.limits, subject or f"task {task.id!r}"
    if limits.sandbox_seconds is None:
        return
    if limits.wall_seconds is None:
        raise BadInputError(
            f"{where}: expected limits.wall_seconds beside sandbox_seconds ({limits.sandbox_seconds:g}), found none;"
            " say how long the agent may take, or the sandbox may end before it"
        )
    score = settings.score_seconds if limits.score_seconds is None else limits.score_seconds
    start, grace = settings.sandbox_start_seconds, settings.close_seconds
    if (needed := start + limits.wall_seconds + score + grace) > limits.sandbox_seconds:
        raise BadInputError(
            f"{where}: expected sandbox_start_seconds ({start:g}), wall_seconds ({limits.wall_seconds:g}),"
            f" score_seconds ({score:g}) and close_seconds ({grace:g}) to fit into sandbox_seconds"
            f" ({limits.sandbox_seconds:g}), but together they are longer ({needed:g}); give the sandbox more time or"
            " agent and scorer less"
        )


def _check_sandbox(where: str, task: Task) -> None:
    """Check what the task asks of its sandbox; whether a kind can make it shows on the worker."""
    if task.sandbox is not None:
        try:
            check_spec(task.sandbox)
        except BadInputError as error:
            raise BadInputError(f"{where}: {error}") from error
        if task.sandbox.mounts:
            raise BadInputError(
                f"{where}: sandbox.mounts is for workers to name ('agent-layer work --mount'); remove it"
            )
        if task.sandbox.kind is not None:
            check_name(task.sandbox.kind, f"{where}: sandbox.kind")
    _check_files(where, task)


def _check_files(where: str, task: Task) -> None:  # kept: its caller's limit
    for path in task.files:
        if not path or "\0" in path or path.endswith("/"):
            raise BadInputError(f"{where}: expected files by path, found the path {path!r}; name a file")
    for path in task.artifacts:
        has_root = task.sandbox is not None and task.sandbox.image.startswith("/")
        if not path or "\0" in path or (path.startswith("/") and not has_root) or ".." in PurePosixPath(path).parts:
            raise BadInputError(
                f"{where}: expected artifacts below the sandbox's work directory, found {path!r}; write a path such as"
                " result.json, or name a root directory as its image for absolute ones"
            )


def _check_depth(value: object, where: str) -> None:  # kept: a search with an early end
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [member for outer in level for member in _list_members(outer)]
        if not level:
            return
    raise BadInputError(
        f"{where}: expected at most {_DEEPEST} lists and objects inside each other, found more; make it flatter"
    )


def _list_members(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[object, object]", value).values()
    return cast("Iterable[object]", value) if isinstance(value, list | tuple) else ()


def _check_bounds(where: str, what: str, value: float, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BadInputError(f"{where}: expected {what} from {low} to {high}, found {value}; correct it")


def _parse(line: bytes, where: str, run: str, split: Split, group_size: int | None) -> Task:
    fields = msgspec.to_builtins(_decode(line, where))
    values = {"run": run, "split": split, "id": fields.get("id") or _name_line(line)}
    size = {"group_size": group_size} if group_size is not None else {}
    return msgspec.convert({"priority": _PRIORITIES[split], **fields, **values, **size, "type": "task"}, Task)


def _decode(line: bytes, where: str) -> _TaskLine:
    try:
        return msgspec.json.decode(line, type=_TaskLine)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(
            f"{where}: expected a JSON object with the fields of a task, found: {error}; nothing was queued, see"
            " 'agent-layer submit -h'"
        ) from error


def _name_line(line: bytes) -> str:
    return content_hash(line)[:_HASH_LETTERS]


Known: TypeAlias = Literal["all", "refuse", "skip"]
"""What to do with known tasks. ``all``: queue them. ``skip``: leave them out. ``refuse``: queue none of the tasks."""


def new_tasks(tasks: Sequence[TaskWithOrigin], known: Known, is_stored: Callable[[Task, str], bool]) -> list[Task]:
    """Return the tasks to queue.

    Args:
        tasks: in the order of the file.
        known: what to do with a task whose input an earlier task or a stored one has.
        is_stored: whether the store has a task with this task's run and split and this input hash.

    Raises: BadInputError: a task is known and ``known`` refuses it; the error names the first.
    """
    if known == "all":
        return [one.task for one in tasks]
    requested: dict[str, str] = {}
    new: list[Task] = []
    for task, place in tasks:
        input_hash = hash_input(task)
        before = requested.get(input_hash) or ("the store" if is_stored(task, input_hash) else None)
        if before is None:
            new.append(task)
        elif known == "refuse":
            raise BadInputError(
                f"{place}: expected a task that asks something new, but {before} has one with the same input (task"
                f" {task.id!r}, input hash {input_hash}); nothing was queued, leave it out or add --known skip"
            )
        requested.setdefault(input_hash, place)
    return new
