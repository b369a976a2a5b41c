"""This file holds which trajectories are of a task that was asked for again later, and answered. Pure."""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from agent_layer.store.rows import TrajectoryRow

__all__ = ["Asking", "asking_of", "find_superseded"]

_TaskKey: TypeAlias = tuple[str | None, ...]
"""Run, split, task type, environment and hash of the input: what makes two tasks the same."""


class Asking(NamedTuple):
    """One asking for a task."""

    task: _TaskKey
    name: str
    """Of its group, or of the rollout that is in no group."""


def find_superseded(rows: Iterable[TrajectoryRow]) -> frozenset[Asking]:
    """All askings but the newest of each task that has an accepted attempt, and those that came after it.

    An asking is as old as the start of its first attempt. One that came to nothing supersedes nobody.
    """
    asked_at: dict[Asking, str] = {}
    answered: set[Asking] = set()
    for row in rows:
        if (asking := asking_of(row)) is None or row.started_at is None:
            continue
        asked_at[asking] = min(asked_at.get(asking, row.started_at), row.started_at)
        if row.accepted:
            answered.add(asking)
    newest: dict[_TaskKey, tuple[str, str]] = {}
    for asking in answered:
        age = asked_at[asking], asking.name
        newest[asking.task] = max(newest.get(asking.task, age), age)
    return frozenset(
        asking for asking, at in asked_at.items() if asking.task in newest and (at, asking.name) < newest[asking.task]
    )


def asking_of(row: TrajectoryRow) -> Asking | None:
    """The asking that a trajectory belongs to; None where the hash of its input is not known."""
    if row.input_hash is None:
        return None
    task = row.run, row.split, row.task_type, row.env, row.input_hash
    return Asking(task, row.group_id or row.rollout_id or row.trajectory_id)
