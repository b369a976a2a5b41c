"""What failed: by status, by whose fault, by the kind of error, with the newest examples."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import Final, cast

from agent_layer.schema import SELF_INFLICTED
from agent_layer.store import By, Filters, TrajectoryRow, count_by_fields, summarise_trajectories
from agent_layer.view.answers.learning import ErrorKind, FailuresAnswer, SelfInflicted
from agent_layer.view.reads.lists import FAILED, facet_lines
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.source import ReadContext
from agent_layer.view.reads.updates import read_whole

_FIELDS: Final[Sequence[By]] = ("status", "cause", "task_type")
_MAX_READ: Final = 200
_MAX_SHOWN: Final = 20
_MAX_EXAMPLES: Final = 3
_MAX_KIND_LENGTH: Final = 120
_VARYING: Final = re.compile(r"\b(?=\w*\d)[\w.:-]+|'[^']*'|\"[^\"]*\"")
"""What differs between errors of one kind: words with digits, quoted names."""
_NO_ERROR: Final = "no error was recorded"
_DAMAGED: Final = "its trajectory is damaged, so its error is not known"


def show_failures(source: ReadContext, params: RequestParams) -> FailuresAnswer:
    """Return what failed among the matching trajectories."""
    filters = params.filters()
    only = filters.get("status")
    each = [cast("Filters", {**filters, "status": status}) for status in FAILED if only in (None, status)]
    found = [row for one in each for row in source.store.query(limit=_MAX_READ, **one).items]
    newest = nlargest(_MAX_READ, found, key=lambda row: row.started_at or "")
    counted = [count_by_fields(source.index, _FIELDS, one) for one in each]
    sums: dict[By, Counter[str | int | None]] = {field: Counter() for field in _FIELDS}
    for _, counts in counted:
        for field in _FIELDS:
            sums[field].update(counts[field])
    return FailuresAnswer(
        num=sum(num for num, _ in counted),
        num_all=source.store.count(**filters),
        by_status=facet_lines(sums["status"]),
        by_cause=facet_lines(sums["cause"]),
        by_task_type=facet_lines(sums["task_type"]),
        num_read=len(newest),
        errors=_kinds(newest, _errors(source, newest)),
        self_inflicted=_count_self_inflicted(source, filters),
        newest=newest[:_MAX_SHOWN],
    )


def _count_self_inflicted(source: ReadContext, filters: Filters) -> list[SelfInflicted]:
    own = cast("Filters", {**filters, "finding": SELF_INFLICTED})
    lines = summarise_trajectories(source.index, ["task", "policy"], own)
    found = [
        SelfInflicted(task_id=str(line.by["task"]), version=cast("int | None", line.by["policy"]), num=line.count)
        for line in lines
    ]
    return sorted(found, key=lambda one: -one.num)


def error_kind(error: str) -> str:
    """Return what an error shares with others of its kind: its first line without numbers, ids and quoted names."""
    first = next((line for line in error.splitlines() if line.strip()), "")
    return _VARYING.sub("…", " ".join(first.split()))[:_MAX_KIND_LENGTH] or _NO_ERROR


def _errors(source: ReadContext, rows: Sequence[TrajectoryRow]) -> dict[str, str]:
    found, damaged = read_whole(source, rows)
    errors = {name: (whole.outcome.error if whole.outcome else None) or "" for name, whole in found.items()}
    return errors | {name: f"{_DAMAGED}\n{why}" for name, why in damaged.items()}


def _kinds(rows: Sequence[TrajectoryRow], errors: Mapping[str, str]) -> list[ErrorKind]:
    grouped: defaultdict[str, list[TrajectoryRow]] = defaultdict(list)
    for row in rows:
        grouped[error_kind(errors.get(row.trajectory_id, ""))].append(row)
    return [
        ErrorKind(
            kind=kind,
            num=len(found),
            cause=found[0].cause,
            newest=errors.get(found[0].trajectory_id, ""),
            examples=[row.trajectory_id for row in found[:_MAX_EXAMPLES]],
        )
        for kind, found in sorted(grouped.items(), key=lambda one: (-len(one[1]), one[0]))
    ]
