"""Lineage: which updates stand behind a checkpoint, in its own run and in the runs that this one branched from.

    run b:        base ◀── step 13 ◀── step 14      version 0 of b names its parent: step 12 of a
                   │
    run a:        step 12 ◀── step 11 ◀── … ◀── step 1 ◀── base model

Everything follows from records in the store. The directories of checkpoints may be gone.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from agent_layer.engines import get_policy
from agent_layer.errors import CorruptRecordError
from agent_layer.schema import CheckpointRef, TrainedBatch
from agent_layer.store import Store, TrajectoryRow, list_batches

_PARENT: Final = "parent-checkpoint.json"
START_PLAN: Final = "supervised.json"
START_STEPS: Final = "supervised.jsonl"


class LearnedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a dataset, at one step of a warm start."""

    trajectory_id: str | None = None
    """Where it is from; None: the dataset does not say."""
    group_id: str | None = None
    """None: it belongs to no group, or the dataset does not say."""
    num_tokens: int
    """Trained tokens."""


class StartStep(msgspec.Struct, frozen=True, kw_only=True):
    """One optimizer step of a warm start, and what it learned from."""

    step: int
    """The first is 1."""
    rows: list[LearnedRow] | None = None
    """None: an earlier release did not record them."""


class _StartPlan(msgspec.Struct, frozen=True, kw_only=True):
    parent: CheckpointRef | None = None


def walk_lineage(store: Store, run: str, step: int | None = None) -> Iterator[TrainedBatch]:
    """Yield the record of each update behind a checkpoint, newest first, then those behind the checkpoint before it.

    An update that was done again after a kill comes once, as it was done last; what a killed trainer had done beyond
    that is left out. A rollout's ``num_tokens`` is None only where its trainer kept no tokens. Deleted rollouts are
    counted in ``num_deleted``, and named nowhere.

    Args:
        store: with the records.
        run: of the checkpoint.
        step: updates behind the checkpoint; None: all updates of the run, even one that was killed before it ended.
    """
    for name, last in walk_parents(store, run, step):
        yield from read_updates(store, name, last)


def read_updates(store: Store, run: str, last: int | None) -> Iterator[TrainedBatch]:
    """Yield the updates of one run behind a checkpoint, newest first; see ``walk_lineage``."""
    batches = [one for one in list_batches(store.redis, store.keys, run) if last is None or one.step <= last]
    for batch in reversed(_drop_abandoned(batches)):
        yield _fill_tokens(store, batch)


def read_start(directory: Path, last: int | None) -> list[StartStep]:
    """Return the steps of a warm start behind a checkpoint, newest first; none of a run that is no warm start.

    Args:
        directory: of the run, ``DIR/runs/RUN``.
        last: step of the checkpoint; None: all of them.

    Raises: CorruptRecordError: a line is damaged, so that some of what was learned is not known.
    """
    path = directory / START_STEPS
    try:
        lines = path.read_bytes().split(b"\n")[:-1]  # behind the last newline is what a killed trainer was writing
        steps = [msgspec.json.decode(line, type=StartStep) for line in lines]
    except FileNotFoundError:
        return []
    except msgspec.DecodeError as error:
        raise CorruptRecordError(
            f"warm start {path}: expected what a step learned from on each line, found {error}; restore the file"
        ) from error
    return [one for one in reversed(steps) if last is None or one.step <= last]


def walk_parents(
    store: Store, run: str, step: int | None = None, runs: Path | None = None
) -> Iterator[tuple[str, int | None]]:
    """Yield (run, its last step behind the checkpoint), of the checkpoint's run first; None: all of its steps.

    Args:
        store: with the records.
        run: of the checkpoint.
        step: updates behind the checkpoint; None: all of them.
        runs: ``DIR/runs``, where warm starts tell what they began with; None: the walk ends at them.
    """
    seen = set[str]()
    while run not in seen:  # a model may be trained again under a name that its parent had
        seen.add(run)
        yield run, step
        base = get_policy(store.redis, store.keys, run, 0)
        if base is not None:
            parent = base.parent
        else:
            parent = None if runs is None else _read_start_parent(runs / run / START_PLAN)
        if parent is None:
            return
        run, step = parent.run, parent.step


def write_parent(directory: Path, parent: CheckpointRef) -> None:
    """Note in a model directory which checkpoint its weights are, for runs that begin with them."""
    (directory / _PARENT).write_bytes(msgspec.json.encode(parent))


def read_parent(directory: Path) -> CheckpointRef | None:
    """Return the checkpoint that the weights of a model directory are; None: it is not known, or none of ours."""
    try:
        return msgspec.json.decode((directory / _PARENT).read_bytes(), type=CheckpointRef)
    except (OSError, msgspec.DecodeError):
        return None


def _read_start_parent(path: Path) -> CheckpointRef | None:
    """Return what a warm start began with; None: it is not known, or none of ours."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_StartPlan).parent
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise CorruptRecordError(f"warm start {path}: expected its plan, found {error}; restore the file") from error


def _drop_abandoned(batches: Sequence[TrainedBatch]) -> list[TrainedBatch]:
    """Return batches without those of a killed trainer that its successor has not come to again yet.

    The successor's versions are higher. Its clock may be any: it may be another machine.
    """
    kept: list[TrainedBatch] = []
    for batch in batches:
        if kept and batch.policy_version < kept[-1].policy_version:
            break
        kept.append(batch)
    return kept


def _fill_tokens(store: Store, batch: TrainedBatch) -> TrainedBatch:
    """Return the batch with numbers of tokens, for trainers that recorded them with the trajectories alone."""
    if batch.num_tokens is not None:
        return batch
    rows = [TrajectoryRow(trajectory_id=one.trajectory_id) for one in batch.rollouts]
    sizes = {
        row.trajectory_id: len(trained.mask)
        for row, found in store.read(rows, contents=False, on_corrupt=lambda _: None)
        for trained in found.trained
        if trained.batch_id == batch.batch_id
    }
    if not sizes:
        return batch
    counts = [sizes.get(one.trajectory_id, 0) for one in batch.rollouts]
    filled = zip(batch.rollouts, counts, strict=True)
    return msgspec.structs.replace(
        batch,
        rollouts=[msgspec.structs.replace(one, num_tokens=count) for one, count in filled],
        num_tokens=None if batch.num_deleted else sum(counts),
    )
