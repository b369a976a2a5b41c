"""Accounts of stored attempts: who learned from each, what it took, and totals by run, task, label, version or update.

    rows of the index ──▶ attempts and their judges, read once ──▶ Expense each ──▶ Account for each value of the fields
                            batches of updates ────────────────────────▲

A group counts for the first update that learned from any of it, with all of its attempts.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import FINAL_STATUSES, ExcludedRollout, TrainedBatch
from agent_layer.store import Filters, Progress, Store, TrajectoryRow, list_batches
from envs.costs.prices import PriceList
from envs.costs.quantities import Quantities, measure_attempt
from envs.grading import JUDGED, judge_run

Fate: TypeAlias = Literal["trained", "evaluated", "waiting", "running", "rejected", "stale", "failed"]
"""What became of an attempt.

trained    an update learned from its tokens
evaluated  it counts for its rollout, of split eval
waiting    it counts for its rollout, and no update had it yet
running    it has not ended
rejected   an update had it, and learned from none of its tokens
stale      it was too old for the update that received it
failed     it does not count for its rollout
"""
WASTE: frozenset[Fate] = frozenset({"rejected", "stale", "failed"})
Field: TypeAlias = Literal["run", "task", "task_type", "split", "version", "update", "fate"]
"""Beside these, ``label:NAME``."""
Update: TypeAlias = tuple[str, int]
"""(run, step)."""
_LABEL = "label:"


class Expense(NamedTuple):
    """What one attempt took, and what became of it."""

    row: TrajectoryRow
    fate: Fate
    update: Update | None
    """The first that learned from its group; None: none did."""
    took: Quantities


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts that share the values of some fields."""

    by: dict[str, str | int | None]
    num_attempts: int
    num_rollouts: int
    num_solved: int
    """Tasks with a rollout that succeeded."""
    num_updates: int
    total: Quantities
    waste: dict[str, Quantities]
    """Parts of the total by fate: rejected, stale, failed."""


def check_fields(fields: Sequence[str]) -> None:
    """Raise unless attempts can be grouped by these fields.

    Raises: BadInputError: they cannot.
    """
    if wrong := [one for one in fields if one not in get_args(Field) and not one.startswith(_LABEL)]:
        raise BadInputError(
            f"cost by {wrong[0]!r}: expected {', '.join(get_args(Field))} or label:NAME; choose of these"
        )


def read_expenses(store: Store, filters: Filters, prices: PriceList | None, progress: Progress) -> Iterator[Expense]:
    """Yield what each matching attempt took, oldest first. Judges count with what they judge.

    Raises: UnreachableError: Redis or the objects do not answer. CorruptRecordError: stored bytes are damaged.
    """
    rows = [row for row in store.scan(**filters) if JUDGED not in row.labels]
    runs = sorted({row.run for row in rows if row.run is not None})
    batches = [batch for run in runs for batch in list_batches(store.redis, store.keys, run)]
    learned = find_learned(batches)
    groups = find_first_updates(batches)
    judges = _find_judges(store, runs, {row.trajectory_id for row in rows})
    for number, (row, trajectory) in enumerate(store.read(rows, contents=False)):
        progress(number, len(rows))
        own = [judge for _, judge in store.read(judges[row.trajectory_id], contents=False)]
        yield Expense(
            row=row,
            fate=find_fate(row, learned[row.trajectory_id], trajectory.exclusions),
            update=groups.get(row.group_id or ""),
            took=measure_attempt(trajectory, own, prices),
        )


def _find_judges(  # kept: read_expenses is a list of named steps
    store: Store, runs: Iterable[str], judged: Collection[str]
) -> defaultdict[str, list[TrajectoryRow]]:
    found: defaultdict[str, list[TrajectoryRow]] = defaultdict(list)
    for run in runs:
        for row in store.scan(run=judge_run(run)):
            if (name := row.labels.get(JUDGED, "")) in judged:
                found[name].append(row)
    return found


def find_learned(batches: Iterable[TrainedBatch]) -> defaultdict[str, set[Update]]:
    """Return the updates whose batch names a trajectory."""
    found: defaultdict[str, set[Update]] = defaultdict(set)
    for batch in batches:
        for rollout in batch.rollouts:
            found[rollout.trajectory_id].add((batch.run, batch.step))
    return found


def find_first_updates(batches: Iterable[TrainedBatch]) -> dict[str, Update]:
    """Return by id of a group the first update that learned from it."""
    found: dict[str, Update] = {}
    for batch in sorted(batches, key=lambda one: (one.trained_at, one.step)):
        for rollout in batch.rollouts:
            found.setdefault(rollout.group_id, (batch.run, batch.step))
    return found


def find_fate(row: TrajectoryRow, updates: Collection[Update], exclusions: Sequence[ExcludedRollout]) -> Fate:
    """Return what became of an attempt.

    Args:
        row: what the index knows.
        updates: those whose batch names it; one that left it out names it, too, where its reward counted.
        exclusions: why updates did not learn from it.
    """
    if row.status not in FINAL_STATUSES:
        return "running"
    if not row.accepted:
        return "failed"
    if row.split == "eval":
        return "evaluated"
    if set(updates) - {(one.run, one.step) for one in exclusions}:
        return "trained"
    if not exclusions:
        return "waiting"
    return "stale" if exclusions[-1].kind == "stale" else "rejected"


def add_up(expenses: Iterable[Expense], fields: Sequence[str], success: float) -> list[Account]:
    """Return an account for each value of the fields, in order of the values.

    Args:
        expenses: of attempts.
        fields: see ``check_fields``; none: one account of everything.
        success: the least reward of a success.
    """
    shared: defaultdict[tuple[str | int | None, ...], list[Expense]] = defaultdict(list)
    for expense in expenses:
        shared[tuple(_find_value(expense, field) for field in fields)].append(expense)
    order = sorted(
        shared,
        key=lambda values: [(value is None, isinstance(value, str), 0 if value is None else value) for value in values],
    )
    return [_add_account(dict(zip(fields, values, strict=True)), shared[values], success) for values in order]


def _find_value(expense: Expense, field: str) -> str | int | None:
    row = expense.row
    if field.startswith(_LABEL):
        return row.labels.get(field.removeprefix(_LABEL))
    match field:
        case "task":
            return row.task_id
        case "version":
            return row.policy_max
        case "update":
            return None if expense.update is None else expense.update[1]
        case "fate":
            return expense.fate
        case _:
            return getattr(row, field)


def _add_account(by: dict[str, str | int | None], expenses: Sequence[Expense], success: float) -> Account:
    solved = {
        (one.row.run, one.row.task_id)
        for one in expenses
        if one.row.accepted and one.row.reward is not None and one.row.reward >= success
    }
    parts: defaultdict[Fate, Quantities] = defaultdict(Quantities)
    for one in expenses:
        parts[one.fate] += one.took
    return Account(
        by=by,
        num_attempts=len(expenses),
        num_rollouts=len({one.row.rollout_id or one.row.trajectory_id for one in expenses}),
        num_solved=len(solved),
        num_updates=len({one.update for one in expenses if one.update is not None}),
        total=sum(parts.values(), Quantities()),
        waste={fate: parts[fate] for fate in sorted(WASTE & parts.keys())},
    )
