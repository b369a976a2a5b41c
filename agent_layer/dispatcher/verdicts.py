"""Verdicts on task sets: which set a task is from, what the last check or audit of it said, and what that refuses.

``agent-layer tasksets check`` and ``audit`` write them into the data directory; submission and training read them. A
set is known by the labels of its tasks; a file of tasks without labels, by its content.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import Task, content_hash

TASKSET_LABEL: Final = "taskset"
VERSION_LABEL: Final = "taskset_version"
"""Labels of a task that say where it is from; ``tasksets write`` adds them."""
AUDIT_LABEL: Final = "audit"
"""Label of submitted tasks, and so of their trajectories: the verdict on their set, or ``mended``: it failed, and
passes without the tasks that were left out."""
FILE_SET: Final = "file"
"""Name of the set that a file of tasks is; its version is the hash of its content."""


class TasksetVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the last check or audit of a task set said."""

    taskset: str
    version: str
    verdict: Literal["passed", "failed"]
    codes: list[str] = []
    """Kinds of findings that failed it."""
    leave_out: list[str] = []
    """Ids of tasks that these are about."""
    is_mendable: bool = False
    """Whether it passes without these tasks."""
    at: float
    """Seconds since the epoch, UTC."""

    @property
    def is_passed(self) -> bool:
        """Whether nothing failed it."""
        return self.verdict == "passed"


def find_taskset(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Return (name, version) of the task set that a task with these labels is from; None: it is from none."""
    return (labels[TASKSET_LABEL], labels.get(VERSION_LABEL, "")) if TASKSET_LABEL in labels else None


def verdict_path(directory: Path, taskset: str, version: str) -> Path:
    """Return where the verdict on a set is, below the data directory."""
    return directory / "tasksets" / f"{content_hash(f'{taskset} {version}'.encode())}.json"


def find_verdict(directory: Path, taskset: str, version: str) -> TasksetVerdict | None:
    """Return the last verdict on a set; None: this version was never checked here."""
    try:
        return msgspec.json.decode(verdict_path(directory, taskset, version).read_bytes(), type=TasksetVerdict)
    except (OSError, msgspec.DecodeError):
        return None


def identify_file(path: Path) -> tuple[str, str]:
    """Return (name, version) of the set that a file of tasks is.

    Raises: BadInputError: it cannot be read.
    """
    try:
        return FILE_SET, content_hash(path.read_bytes())
    except OSError as error:
        raise BadInputError(f"tasks file {path}: expected a readable file, found {error}; check the path") from error


def label_tasks(
    directory: Path, tasks: Iterable[Task], file_set: tuple[str, str] | None = None, *, left_out: Collection[str] = ()
) -> tuple[list[Task], list[TasksetVerdict]]:
    """Return the tasks with the verdicts on their sets as labels, and those verdicts that refuse their set.

    Args:
        directory: the data directory.
        tasks: to label.
        file_set: set of the tasks without a label of their own; None: they are from none.
        left_out: ids of tasks that were left out; a set that passes without them is not refused.
    """
    verdicts: dict[tuple[str, str], TasksetVerdict | None] = {}
    labelled: list[Task] = []
    refused: dict[tuple[str, str], TasksetVerdict] = {}
    for task in tasks:
        found = find_taskset(task.labels) or file_set
        if found is not None and found not in verdicts:
            verdicts[found] = find_verdict(directory, *found)
        verdict = None if found is None else verdicts[found]
        if found is None or verdict is None:
            labelled.append(task)
            continue
        is_mended = verdict.is_mendable and set(verdict.leave_out) <= set(left_out)
        if not (verdict.is_passed or is_mended):
            refused[found] = verdict
        labels = {**task.labels, AUDIT_LABEL: "mended" if is_mended and not verdict.is_passed else verdict.verdict}
        labelled.append(msgspec.structs.replace(task, labels=labels))
    return labelled, list(refused.values())


def refuse_failed(verdicts: Iterable[TasksetVerdict], then: str) -> None:
    """Refuse tasks of sets that failed.

    Args:
        verdicts: on sets that failed.
        then: what to do, such as ``submit with --unchecked``.

    Raises: BadInputError: there is one.
    """
    for one in verdicts:
        name = "this file" if one.taskset == FILE_SET else f"task set {one.taskset!r} version {one.version!r}"
        when = time.strftime("%Y-%m-%d", time.gmtime(one.at))
        raise BadInputError(
            f"{name}: expected a set that passed, but it failed on {when}: {', '.join(one.codes)}; mend it and check it"
            f" again, or {then}"
        )
