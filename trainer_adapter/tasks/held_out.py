"""Held-out tasks of a run: as its evaluation rounds take them, and as what no update may learn from."""

import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agent_layer.errors import CorruptRecordError
from agent_layer.infra import append_line, read_lines
from agent_layer.schema import HeldOutSet, HeldOutTasks, LeftOutTask, Task, hold_out
from agent_layer.settings import Settings
from envs.evaluation import LoadedTasks, TaskSource, load_tasks
from envs.tasksets import open_taskset, read_holdout
from trainer_adapter.config import HeldOutConfig

log = logging.getLogger(__name__)


def load_held_out(configs: Sequence[HeldOutConfig], *, run: str) -> dict[str, LoadedTasks]:
    """Read the held-out tasks of a run, by the name of their set.

    Raises: BadInputError: a file or task set cannot be used.
    """
    return {one.label: _load(one, run) for one in configs}


def read_held_out_sets(configs: Sequence[HeldOutConfig], *, run: str) -> list[HeldOutSet]:
    """Read the held-out sets of a run, to compare tasks with.

    Raises: BadInputError: a file or task set cannot be used.
    """
    return [
        hold_out(
            one.label,
            _load(one, run).tasks,
            holdout=one.holdout or (None if one.taskset is None else read_holdout(open_taskset(one.taskset))),
            repositories=one.repositories,
        )
        for one in configs
    ]


def read_named_sets(names: Sequence[str], *, run: str, level: int = 0, limit: int | None = None) -> list[HeldOutSet]:
    """Read held-out sets that a command names: files, folders, or task sets by name.

    Raises: BadInputError: there is no such file or task set.
    """
    configs = [
        HeldOutConfig(path=Path(name), count=limit)
        if Path(name).exists() or name.endswith(".jsonl")
        else HeldOutConfig(taskset=name, level=level, count=limit)
        for name in names
    ]
    return read_held_out_sets(configs, run=run)


def open_held_out(configs: Sequence[HeldOutConfig], settings: Settings, run: str) -> "HeldOutFilter":
    """Open what keeps held-out tasks out of a run, and record what it holds out, for ``read_held_out``.

    Raises: BadInputError: a file or task set cannot be used.
    """
    found = HeldOutFilter(HeldOutTasks(read_held_out_sets(configs, run=run)), settings, run)
    known = read_held_out(settings, run)
    for one in found.held_out.sets:
        if one not in known:
            append_line(_directory(settings, run) / "held_out.jsonl", one)
    return found


def read_held_out(settings: Settings, run: str) -> list[HeldOutSet]:
    """Return the sets that a run held out, of all its starts, oldest first.

    Raises: CorruptRecordError: a line is damaged, so that some of what is held out is not known.
    """
    path = _directory(settings, run) / "held_out.jsonl"
    try:
        lines = path.read_bytes().split(b"\n")[:-1]  # behind the last newline is what a killed trainer was writing
        return [msgspec.json.decode(line, type=HeldOutSet) for line in lines]
    except FileNotFoundError:
        return []
    except msgspec.DecodeError as error:
        raise CorruptRecordError(
            f"held-out tasks {path}: expected a held-out set on each line, found {error}; restore the file"
        ) from error


def read_left_out(settings: Settings, run: str) -> list[LeftOutTask]:
    """Return the tasks that a run left out, of all its starts, oldest first."""
    return read_lines(_directory(settings, run) / "left_out.jsonl", LeftOutTask)


class HeldOutFilter:
    """Leaves out tasks that repeat held-out ones; each is logged once, and kept in the run's ``left_out.jsonl``."""

    def __init__(self, held_out: HeldOutTasks, settings: Settings, run: str) -> None:
        self.held_out = held_out
        self._path = _directory(settings, run) / "left_out.jsonl"
        self._known = read_left_out(settings, run)
        self._refused = set[tuple[str, int, str]]()
        """(source, level, task id)."""

    def admits(self, task: Task, source: str, level: int) -> bool:
        """Return whether a task of a source may be trained."""
        key = (source, level, task.id)
        if key in self._refused:
            return False
        if (match := self.held_out.find_refusal(task)) is None:
            return True
        self._refused.add(key)
        found = LeftOutTask(source=source, task_id=task.id, match=match)
        if found not in self._known:
            self._known.append(found)
            append_line(self._path, found)
            log.warning("source %s: task %s %s; it is not trained", source, task.id, match)
        return False


def _load(one: HeldOutConfig, run: str) -> LoadedTasks:
    name = one.taskset or str(one.path)
    return load_tasks(TaskSource(name=name, seed=one.seed, level=one.level, limit=one.count), run)


def _directory(settings: Settings, run: str) -> Path:
    return settings.dir / "runs" / run
