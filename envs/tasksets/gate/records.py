"""Reports of the gate, kept in the data directory, and what may train because of them."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.infra import make_private
from agent_layer.schema import Task, content_hash
from envs.tasksets.gate.gate import Report

TASKSET_LABEL: Final = "taskset"
VERSION_LABEL: Final = "taskset_version"
"""Labels of a task that say where it is from; ``tasksets write`` adds them."""


def save_report(directory: Path, report: Report) -> Path:
    """Keep a report in place of earlier ones of the same set and version; return its file."""
    path = _path_of(directory, report.taskset, report.version)
    make_private(path.parent)
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    new.replace(path)
    return path


def find_report(directory: Path, taskset: str, version: str) -> Report | None:
    """Return the last report on a set; None: this version was never checked here."""
    try:
        return msgspec.json.decode(_path_of(directory, taskset, version).read_bytes(), type=Report)
    except (OSError, msgspec.DecodeError):
        return None


def check_trainable(directory: Path, tasks: Iterable[Task]) -> None:
    """Check that every task set among the tasks has passed its gate; tasks without such a label are the user's own.

    Raises: BadInputError: one has failed, or was never checked.
    """
    sets = {
        (task.labels[TASKSET_LABEL], task.labels.get(VERSION_LABEL, ""))
        for task in tasks
        if TASKSET_LABEL in task.labels
    }
    for taskset, version in sorted(sets):
        report = find_report(directory, taskset, version)
        if report is not None and report.is_passed:
            continue
        when = "" if report is None else time.strftime(" on %Y-%m-%d", time.gmtime(report.at))
        found = "it was never checked here" if report is None else f"it failed{when}, {len(report.failures)} times"
        raise BadInputError(
            f"task set {taskset!r} version {version!r}: expected a passed check before it trains, but {found}; run"
            f" 'agent-layer tasksets check {taskset}', or train with --unchecked"
        )


def _path_of(directory: Path, taskset: str, version: str) -> Path:
    return directory / "tasksets" / f"{content_hash(f'{taskset} {version}'.encode())}.json"
