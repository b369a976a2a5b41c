"""Audit of a checkpoint: whether an update behind it learned from a held-out task."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from agent_layer.errors import NotFoundError
from agent_layer.schema import AttemptStarted, CheckpointRef, HeldOutMatch, HeldOutTasks, hash_input
from agent_layer.store import Store, TrajectoryRow
from trainer_adapter.lineage import LearnedRow, read_start, read_updates, walk_parents


class LearnedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that repeats a held-out one, and the updates that learned from it."""

    task_id: str
    match: HeldOutMatch
    updates: list[CheckpointRef]
    """Run and number of each, newest first."""
    num_rollouts: int
    num_tokens: int
    """Trained tokens of its rollouts; those whose number is not known count 0."""


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What stands behind a checkpoint, compared with held-out tasks."""

    run: str
    step: int
    num_held_out: int
    num_updates: int
    num_groups: int
    num_tasks: int
    num_tokens: int
    learned: list[LearnedTask]
    """Held-out tasks that were learned, most tokens first."""
    near: list[LearnedTask]
    """Near-duplicates that their sets do not refuse, most tokens first."""
    num_deleted: int
    """Rollouts that were deleted since: nothing of them can be compared."""
    num_unknown: int
    """Groups whose task was not recorded, or whose bytes are gone or damaged. All rows of a warm start whose dataset
    does not name their trajectories count as one."""
    unrecorded: list[CheckpointRef]
    """Checkpoints that it began with, of runs without the record of an update here."""

    @property
    def is_proven(self) -> bool:
        """Whether nothing held out was learned, and everything could be compared."""
        return not (self.learned or self.num_deleted or self.num_unknown or self.unrecorded)


class _LearnedGroup(msgspec.Struct):
    """Rollouts of one task in one lineage, by trajectory, and the updates that learned from them."""

    trajectory_ids: list[str] = []
    updates: dict[tuple[str, int], None] = {}
    num_tokens: int = 0


class _Learned(msgspec.Struct):
    """What the updates behind a checkpoint learned from."""

    groups: dict[str, _LearnedGroup] = {}
    num_updates: int = 0
    num_deleted: int = 0
    unrecorded: list[CheckpointRef] = []

    def add(self, update: tuple[str, int], group_id: str, trajectory_id: str | None, num_tokens: int) -> None:
        """Count a rollout that an update learned from; None: nothing tells which."""
        group = self.groups.setdefault(group_id, _LearnedGroup())
        group.trajectory_ids += [trajectory_id] if trajectory_id else []
        group.updates[update] = None
        group.num_tokens += num_tokens


def audit_checkpoint(
    store: Store,
    checkpoint: CheckpointRef,
    held_out: HeldOutTasks,
    runs: Path,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Audit:
    """Compare the task of every group behind a checkpoint with held-out tasks; rollouts of a group share their task.

    A warm start (SFT, DPO) in the lineage counts with every row that one of its steps learned from.

    Args:
        store: with the trajectories.
        checkpoint: whose lineage it is; see ``walk_lineage``.
        held_out: near-duplicates are looked for in all sets.
        runs: ``DIR/runs``, with the steps of warm starts.
        progress: called with the groups that were compared, and the number of all.

    Raises: NotFoundError: no update is recorded.
    """
    behind = _read_learned(store, checkpoint, runs)
    groups = behind.groups
    if not behind.num_updates:
        raise NotFoundError(
            f"step {checkpoint.step} of run {checkpoint.run}: expected the record of an update, found none; check the"
            " name, or run 'agent-layer store reindex' if the run is older than the index"
        )
    tasks: dict[tuple[str, bytes], list[_LearnedGroup]] = {}
    matches: dict[tuple[str, bytes], HeldOutMatch | None] = {}
    known = set[str]()
    for group_id, started in _read_starts(store, groups):
        task, input_hash = started.task, started.input_hash or (started.task and hash_input(started.task))
        key = (started.task_id, msgspec.msgpack.encode([input_hash, task and [task.sandbox, task.labels]]))
        if key not in matches:
            matches[key] = held_out.find_match(task, input_hash)
        if task is not None or matches[key]:  # a hash that matches nothing does not tell text and repository
            tasks.setdefault(key, []).append(groups[group_id])
            known.add(group_id)
        progress(len(known), len(groups))
    found = sorted(
        (_sum_up(task_id, match, tasks[task_id, content]) for (task_id, content), match in matches.items() if match),
        key=lambda one: (-one.num_tokens, one.task_id),
    )
    return Audit(
        run=checkpoint.run,
        step=checkpoint.step,
        num_held_out=len(held_out),
        num_updates=behind.num_updates,
        num_groups=len(groups),
        num_tasks=len(tasks),
        num_tokens=sum(one.num_tokens for one in groups.values()),
        learned=[one for one in found if one.match.is_refused],
        near=[one for one in found if not one.match.is_refused],
        num_deleted=behind.num_deleted,
        num_unknown=len(groups) - len(known),
        unrecorded=behind.unrecorded,
    )


def _read_learned(store: Store, checkpoint: CheckpointRef, runs: Path) -> _Learned:
    found = _Learned()
    parents = list(walk_parents(store, checkpoint.run, checkpoint.step, runs))
    for place, (run, last) in enumerate(parents):
        num_before = found.num_updates
        for batch in read_updates(store, run, last):
            found.num_updates, found.num_deleted = found.num_updates + 1, found.num_deleted + batch.num_deleted
            for one in batch.rollouts:
                found.add((run, batch.step), one.group_id, one.trajectory_id, one.num_tokens or 0)
        for step in read_start(runs / run, last):
            found.num_updates += 1
            for row in [LearnedRow(num_tokens=0)] if step.rows is None else step.rows:
                group_id = row.group_id or row.trajectory_id or f"rows of {run}"
                found.add((run, step.step), group_id, row.trajectory_id, row.num_tokens)
        is_branch = place + 1 < len(parents) and parents[place + 1][1] == last  # and no update since
        if num_before == found.num_updates and last and not is_branch:
            found.unrecorded.append(CheckpointRef(run=run, step=last))
    return found


def _read_starts(store: Store, groups: Mapping[str, _LearnedGroup]) -> Iterator[tuple[str, AttemptStarted]]:
    """Yield how a rollout of each group began; where bytes of one are gone, of another one."""
    missing = dict(groups)
    for num in range(max(len(one.trajectory_ids) for one in groups.values()) if groups else 0):
        chosen = {
            one.trajectory_ids[num]: group_id for group_id, one in missing.items() if num < len(one.trajectory_ids)
        }
        rows = (TrajectoryRow(trajectory_id=one) for one in chosen)
        for row, trajectory in store.read(rows, contents=False, on_corrupt=lambda _: None):
            if trajectory.started is not None:
                del missing[chosen[row.trajectory_id]]
                yield chosen[row.trajectory_id], trajectory.started
        if not missing:
            return


def _sum_up(task_id: str, match: HeldOutMatch, groups: Sequence[_LearnedGroup]) -> LearnedTask:
    updates = dict.fromkeys(update for one in groups for update in one.updates)
    return LearnedTask(
        task_id=task_id,
        match=match,
        updates=[CheckpointRef(run=run, step=step) for run, step in updates],
        num_rollouts=sum(len(one.trajectory_ids) for one in groups),
        num_tokens=sum(one.num_tokens for one in groups),
    )
