"""Reports of the gate, kept in the data directory, and what may train because of them."""

import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from agent_layer.dispatcher import TASKSET_LABEL, VERSION_LABEL, find_taskset, find_verdict, refuse_failed, verdict_path
from agent_layer.errors import BadInputError
from agent_layer.infra import make_private, replace_file
from agent_layer.schema import HOLDOUT_LABEL, JsonObject, Task
from envs.grading import has_shared_judge
from envs.scorers import load_scorer
from envs.tasksets.gate.report import Report
from envs.tasksets.registry import read_holdout
from envs.tasksets.sources import identify_taskset
from envs.tasksets.taskset import TaskSet


def save_report(directory: Path, report: Report) -> Path:
    """Keep a report in place of earlier ones of the same set and version; return its file."""
    path = verdict_path(directory, report.taskset, report.version)
    make_private(path.parent)
    replace_file(path, msgspec.json.format(msgspec.json.encode(report), indent=1))
    return path


def find_report(directory: Path, taskset: str, version: str) -> Report | None:
    """Return the last report on a set; None: this version was never checked here."""
    try:
        return msgspec.json.decode(verdict_path(directory, taskset, version).read_bytes(), type=Report)
    except (OSError, msgspec.DecodeError):
        return None


def write_task_line(task: Task, taskset: TaskSet) -> bytes:
    """Return a task of a set as a line of a tasks file; run and split are of the submission."""
    labels = {**task.labels, TASKSET_LABEL: taskset.name, VERSION_LABEL: identify_taskset(taskset)}
    if (holdout := read_holdout(taskset)) != "exact":
        labels[HOLDOUT_LABEL] = holdout
    fields: JsonObject = msgspec.to_builtins(msgspec.structs.replace(task, labels=labels))
    left_out = ("run", "split", "type", "schema_version")
    return (
        msgspec.json.encode(
            {name: value for name, value in fields.items() if name not in left_out and value is not None}
        )
        + b"\n"
    )


def check_trainable(directory: Path, tasks: Iterable[Task], file_sets: Iterable[tuple[str, str] | None] = ()) -> None:
    """Check that every task set among the tasks has passed its gate, and that no file of tasks failed an audit.

    Args:
        directory: the data directory.
        tasks: those without the label of a set are the user's own.
        file_sets: the files that they are from, as ``identify_file`` names them.

    Raises: BadInputError: a set has failed or was never checked, or a file has failed.
    """
    failed = (find_verdict(directory, *one) for one in file_sets if one is not None)
    refuse_failed((one for one in failed if one is not None and not one.is_passed), "train with --unchecked")
    sets = {found for task in tasks if (found := find_taskset(task.labels)) is not None}
    for taskset, version in sorted(sets):
        report = find_verdict(directory, taskset, version)
        if report is not None and report.is_passed:
            continue
        when = "" if report is None else time.strftime(" on %Y-%m-%d", time.gmtime(report.at))
        found = "it was never checked here" if report is None else f"it failed{when}, {', '.join(report.codes)}"
        raise BadInputError(
            f"task set {taskset!r} version {version!r}: expected a passed check before it trains, but {found}; run"
            f" 'agent-layer tasksets check {taskset}', or train with --unchecked"
        )


def check_judges(tasks: Iterable[Task]) -> None:
    """Check that no scorer of these tasks shares an interpreter with the judged code.

    A scorer that cannot be imported here, but where its workers are, is theirs to refuse.

    Raises: BadInputError: one does.
    """
    for name, task in {task.scorer: task for task in tasks if task.scorer is not None}.items():
        try:
            scorer = load_scorer(name)
        except BadInputError:
            continue
        if has_shared_judge(scorer):
            raise BadInputError(
                f"task {task.id!r}: its scorer {name!r} shares an interpreter with the judged code, which can force its"
                " reward (docs/how-to/score-code.md has the measured share of cheats that pays); judge by values,"
                " hidden tests or output, or train with --accept-shared-judge"
            )
