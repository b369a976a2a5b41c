"""Tasks of a round, from a task set, a file or a folder, with what identifies them."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from agent_layer.dispatcher import check_task, read_tasks
from agent_layer.errors import BadInputError
from agent_layer.schema import JsonObject, Task, content_hash, hash_input
from agent_layer.settings import Settings
from envs.evaluation.figures.figures import TaskRef
from envs.evaluation.rounds import TaskSource
from envs.tasksets import HarborTasks, find_task_directories, open_taskset

GENERATED_TASKS = 50
"""Tasks of a task set where the caller names no limit: a generated set has no end."""
_HARBOR_FILE = "task.toml"


class LoadedTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks, and where they come from."""

    tasks: list[Task]
    source: TaskSource
    agent: str | None = None
    """Agent that plays them where the caller names none."""
    notes: list[str] = []
    """On tasks that cannot run here, with what they need."""


def load_tasks(source: TaskSource, run: str, settings: Settings | None = None) -> LoadedTasks:
    """Read the tasks of a source; all become tasks of split eval in this run.

    Args:
        source: a task set, a file, a folder of such files, or a folder of Harbor tasks.
        run: of the round.
        settings: what Harbor tasks find and may do; None: those of the environment.

    Raises: BadInputError: there is no such source, or a task in it cannot be queued.
    """
    path = Path(source.name)
    if path.is_dir() and (directories := find_task_directories(path)):
        if (file := _find_file_beside(path, directories)) is not None:
            raise BadInputError(
                f"folder {path}: expected files of tasks or Harbor tasks, found both, {file} and {directories[0]};"
                " name one of them"
            )
        return _read_harbor(source, run, settings)
    if path.is_dir():
        tasks = list(islice(_read_folder(path, run), source.limit))
        return LoadedTasks(tasks=tasks, source=source, agent=_common_agent(tasks))
    if path.is_file() or path.suffix == ".jsonl":
        tasks = read_tasks(path, run=run, split="eval")[: source.limit]
        return LoadedTasks(tasks=tasks, source=source, agent=_common_agent(tasks))
    return _read_taskset(source, run)


def prepare_task(task: Task, *, group_size: int, agent: str | None, sampling: JsonObject) -> Task:
    """Return a task as the round submits it.

    Args:
        task: as its source has it.
        group_size: rollouts to ask for.
        agent: the worker's target, which plays it whatever agent the task names; None: the one that it names.
        sampling: put in place of the task's.
    """
    changed = msgspec.structs.replace(
        task,
        group_size=group_size,
        launch=None,
        partial="deliver",
        from_policy=None,
        sampling={**task.sampling, **sampling},
    )
    if agent is None:
        return changed
    return msgspec.structs.replace(changed, agent=None, env=task.env if task.env == agent else None)


def reference_task(task: Task) -> TaskRef:
    """Return what identifies a task in its round and in others."""
    return TaskRef(
        id=task.id,
        input_hash=hash_input(task),
        task_type=task.task_type,
        labels=task.labels,
        calls_optional=task.calls_optional,
        content_hash=content_hash(_identify(task)),
    )


def hash_tasks(tasks: list[Task]) -> str:
    """Return a hash of ids, inputs, gradings and scorers; the order does not matter."""
    return content_hash(b"\n".join(sorted(map(_identify, tasks))))


def _identify(task: Task) -> bytes:
    return msgspec.json.encode([task.id, hash_input(task), task.grading, task.scorer], order="deterministic")


def _read_taskset(source: TaskSource, run: str) -> LoadedTasks:
    taskset = open_taskset(source.name)
    if source.level not in taskset.levels:
        levels = taskset.levels
        raise BadInputError(
            f"task set {source.name!r}: expected a level from {levels[0]} to {levels[-1]}, found {source.level};"
            " choose one with --level"
        )
    limit = GENERATED_TASKS if source.limit is None else source.limit
    split = "train" if source.split == "train" else "eval"
    found = islice(taskset.tasks(split=split, seed=source.seed, level=source.level, count=limit), limit)
    tasks = [check_task(msgspec.structs.replace(task, run=run, split="eval")) for task in found]
    if not tasks:
        raise BadInputError(
            f"task set {source.name!r}: expected tasks of split {split}, found none; try another --split"
        )
    named = msgspec.structs.replace(source, version=taskset.version, limit=limit)
    return LoadedTasks(tasks=tasks, source=named, agent=taskset.agent or None)


def _find_file_beside(folder: Path, directories: list[Path]) -> Path | None:  # kept: a task has own *.jsonl
    files = sorted(folder.rglob("*.jsonl"))
    return next((one for one in files if not any(one.is_relative_to(place) for place in directories)), None)


def _read_harbor(source: TaskSource, run: str, settings: Settings | None) -> LoadedTasks:
    taskset = HarborTasks(Path(source.name), settings)
    found = taskset.read_tasks(source.limit)
    tasks = [check_task(msgspec.structs.replace(task, run=run, split="eval")) for task in found]
    named = msgspec.structs.replace(source, version=taskset.version)
    return LoadedTasks(tasks=tasks, source=named, agent=taskset.agent, notes=taskset.list_notes())


def _read_folder(folder: Path, run: str) -> Iterator[Task]:
    """Yield the tasks of all files below a folder, in order of their paths."""
    files = sorted(folder.rglob("*.jsonl"))
    if not files:
        raise BadInputError(
            f"folder {folder}: expected files of tasks (*.jsonl) or Harbor tasks ({_HARBOR_FILE}), found none; name"
            " another folder, a file or a task set"
        )
    places: dict[str, Path] = {}
    for file in files:
        for task in read_tasks(file, run=run, split="eval"):
            if task.id in places:
                raise BadInputError(
                    f"{file}: expected a task that is not in the folder yet, found the id {task.id!r} of"
                    f" {places[task.id]}; give each task its own id"
                )
            places[task.id] = file
            yield task


def _common_agent(tasks: list[Task]) -> str | None:
    """Return the agent or environment that all tasks name; None: they name none, or several."""
    named = {task.agent or task.env for task in tasks}
    return next(iter(named)) if len(named) == 1 else None
