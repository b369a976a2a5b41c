"""What learned from recalled trajectories: updates, their share of each, and the last checkpoint before all of them.

A wrong reward moves the baseline of its whole group. So each share comes twice: tokens of the recalled trajectories,
and tokens of all rollouts of their groups.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from agent_layer.engines import newest_policy
from agent_layer.schema import CheckpointRef, TrainedBatch, TrainedRollout
from agent_layer.settings import Settings
from agent_layer.store import Store
from trainer_adapter.lineage import walk_lineage, walk_parents
from trainer_adapter.loop import CheckpointDirectory, Cursor
from trainer_adapter.recall.find import RecalledTrajectory


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that one update, or all behind a checkpoint, learned from. None: a trainer kept no number of tokens."""

    num_tokens: int | None
    """Sampled tokens of recalled trajectories."""
    num_group_tokens: int | None
    """Sampled tokens of all rollouts in their groups, which share a baseline with them."""
    num_all_tokens: int | None
    """All sampled tokens, those of rollouts that were deleted since included."""
    num_deleted: int
    """Rollouts that were deleted since: no record says whether they would be recalled."""


class RecalledUpdate(Share, frozen=True, kw_only=True):
    """One update that learned from recalled trajectories."""

    run: str
    step: int
    policy_version: int
    """Version of the weights that learned from them."""
    num_rollouts: int
    """Recalled trajectories in its batch."""
    num_groups: int
    trajectory_ids: list[str]


class RecalledRun(Share, frozen=True, kw_only=True):
    """One run whose weights learned from recalled trajectories, directly or in a run that it branched from.

    Shares are those of the lineage of its last checkpoint.
    """

    run: str
    step: int | None
    """Its last checkpoint on this machine, else its newest published version; None: neither is known, all counts."""
    num_updates: int
    """Updates behind it."""
    num_recalled_updates: int
    clean: CheckpointRef
    """The last state before the first update that learned from them. Step 0: the model that the run began with."""
    checkpoint: CheckpointRef | None
    """The last checkpoint up to there that this machine keeps; None: it keeps none."""
    directory: str | None


class Recall(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found."""

    trajectories: list[RecalledTrajectory]
    """Those that no update learned from, too."""
    num_learned: int
    """Trajectories that at least one update learned from."""
    groups: list[str]
    """Groups of the trajectories."""
    updates: list[RecalledUpdate]
    """Sorted by run, then by step."""
    runs: list[RecalledRun]
    num_deleted: int
    """Rollouts of all updates that were looked at, these and others, that were deleted since."""


def trace_recalled(
    settings: Settings, store: Store, runs: Iterable[str], trajectories: Sequence[RecalledTrajectory]
) -> Recall:
    """Return which updates of these runs, and of those that they branched from, learned from the trajectories."""
    recalled = {one.trajectory_id: one for one in trajectories}
    updates: dict[tuple[str, int], RecalledUpdate] = {}
    deleted: dict[tuple[str, int], int] = {}
    found: list[RecalledRun] = []
    for run in sorted(set(runs)):
        lineage = [(batch, _measure(batch, recalled)) for batch in walk_lineage(store, run)]
        deleted |= {(batch.run, batch.step): batch.num_deleted for batch, _ in lineage}
        wrong = [update for _, update in lineage if update is not None]
        if wrong:
            updates |= {(one.run, one.step): one for one in wrong}
            found.append(_measure_run(settings, store, run, lineage, wrong[-1]))
    named = {rollout.group_id for rollout in trajectories if rollout.group_id is not None}
    learned = {trajectory_id for update in updates.values() for trajectory_id in update.trajectory_ids}
    return Recall(
        trajectories=list(trajectories),
        num_learned=len(learned),
        groups=sorted(named),
        updates=[updates[place] for place in sorted(updates)],
        runs=found,
        num_deleted=sum(deleted.values()),
    )


class KeptCheckpoint(NamedTuple):
    """A checkpoint on this machine."""

    place: CheckpointRef
    directory: Path
    cursor: Cursor


def find_kept_checkpoint(settings: Settings, store: Store, last: CheckpointRef) -> KeptCheckpoint | None:
    """Return the newest checkpoint on this machine with no update behind it that is not behind ``last``; or None."""
    for run, step in walk_parents(store, last.run, last.step):
        kept = CheckpointDirectory(settings, run).all()
        for directory, cursor in reversed(kept):
            if step is None or cursor.step <= step:
                return KeptCheckpoint(CheckpointRef(run=run, step=cursor.step), directory, cursor)
    return None


def _measure(batch: TrainedBatch, recalled: Mapping[str, RecalledTrajectory]) -> RecalledUpdate | None:
    """Return what a batch has of the recalled trajectories; None: nothing."""
    ours = [
        rollout
        for rollout in batch.rollouts
        if (one := recalled.get(rollout.trajectory_id)) is not None and one.was_learned(rollout.reward_ids)
    ]
    if not ours:
        return None
    groups = {rollout.group_id for rollout in ours}
    return RecalledUpdate(
        run=batch.run,
        step=batch.step,
        policy_version=batch.policy_version,
        num_rollouts=len(ours),
        num_groups=len(groups),
        trajectory_ids=[rollout.trajectory_id for rollout in ours],
        num_tokens=_sum_tokens(ours),
        num_group_tokens=_sum_tokens(rollout for rollout in batch.rollouts if rollout.group_id in groups),
        num_all_tokens=batch.num_tokens,
        num_deleted=batch.num_deleted,
    )


def _measure_run(
    settings: Settings,
    store: Store,
    run: str,
    lineage: Sequence[tuple[TrainedBatch, RecalledUpdate | None]],
    first: RecalledUpdate,
) -> RecalledRun:
    newest, published = CheckpointDirectory(settings, run).newest(), newest_policy(store.redis, store.keys, run)
    step = newest[1].step if newest else published.training_step if published else None
    behind = [(batch, one) for batch, one in lineage if batch.run != run or step is None or batch.step <= step]
    wrong = [update for _, update in behind if update is not None]
    clean = CheckpointRef(run=first.run, step=first.step - 1)
    kept = find_kept_checkpoint(settings, store, clean)
    return RecalledRun(
        run=run,
        step=step,
        num_updates=len(behind),
        num_recalled_updates=len(wrong),
        clean=clean,
        checkpoint=kept.place if kept else None,
        directory=str(kept.directory) if kept else None,
        num_tokens=_sum(update.num_tokens for update in wrong),
        num_group_tokens=_sum(update.num_group_tokens for update in wrong),
        num_all_tokens=_sum(batch.num_tokens for batch, _ in behind),
        num_deleted=sum(batch.num_deleted for batch, _ in behind),
    )


def _sum_tokens(rollouts: Iterable[TrainedRollout]) -> int | None:
    return _sum(rollout.num_tokens for rollout in rollouts)


def _sum(counts: Iterable[int | None]) -> int | None:
    """Return the sum; None: one of them is not known."""
    known: list[int | None] = list(counts)
    return None if None in known else sum(one or 0 for one in known)
