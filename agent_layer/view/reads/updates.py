"""What one update learned from: rollouts from the queue to the update, their groups, and what was left out."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import accumulate

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.health import StepProgress
from agent_layer.infra import mean
from agent_layer.schema import Group, TrainedBatch, TrainedRollout, TrainedTokens, Trajectory, decode
from agent_layer.store import TrajectoryRow, list_batches
from agent_layer.view.answers.lists import ExclusionLine, GroupLine, Lane, UpdateAnswer
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.source import ReadContext


def show_update(source: ReadContext, params: RequestParams) -> UpdateAnswer:
    """Return what an update learned from.

    Raises: NotFoundError: none of this number is stored.
    """
    run, step = params.path["run"], params.path_number("step")
    batches = list_batches(source.store.redis, source.store.keys, run)
    batch = next((one for one in batches if one.step == step), None)
    if batch is None:
        raise NotFoundError(_explain_missing(source, run, step, batches))
    named = {rollout.trajectory_id: None for rollout in batch.rollouts}
    groups = {rollout.group_id: None for rollout in batch.rollouts}
    beside = [name for group in groups for name in _members(source, group) if name not in named]
    rows = {row.trajectory_id: row for row in source.index.rows([*named, *beside])}
    found, damaged = read_whole(source, rows.values())
    report = next((one for one in source.progress(run) if one.step == step), None)
    return UpdateAnswer.from_record(
        batch,
        rollouts=[
            _lane(batch, one, rows.get(one.trajectory_id), found.get(one.trajectory_id), damaged.get(one.trajectory_id))
            for one in batch.rollouts
        ],
        groups=_groups(batch),
        excluded=[
            ExclusionLine.from_record(one)
            for whole in found.values()
            for one in whole.exclusions
            if (one.run, one.step) == (run, step)
        ],
        not_learned=_not_learned(report) if report else [],
        findings=report.health if report else [],
        gap_by_engine=report.gap_by_engine if report else {},
    )


def _explain_missing(source: ReadContext, run: str, step: int, batches: Sequence[TrainedBatch]) -> str:
    """Return why a step has no update."""
    reports = {one.step: one for one in source.progress(run)}
    newest = max((*reports, *(one.step for one in batches)), default=None)
    subject = f"update {step} of run {run!r}"
    if (report := reports.get(step)) is not None and not report.num_samples:
        return f"{subject}: there is none, because nothing of this step could be trained: {_untrained(report)}"
    if report is not None:
        return (
            f"{subject}: expected its batch of {report.num_samples} samples in the store, found none; it was deleted,"
            " or its log is not shipped yet"
        )
    if newest is not None and step > newest:
        return f"{subject}: it is not made yet; the newest is {newest}"
    if step == 0:
        return f"{subject}: updates count from 1; version 0 of the policy is the one that the run began with"
    return f"{subject}: expected its batch in the store, found none; list /updates"


def _untrained(report: StepProgress) -> str:
    kinds = ", ".join(f"{num} {kind}" for kind, num in sorted(report.untrainable.items()))
    reasons = _not_learned(report)
    reasons += [f"{report.num_untrainable} rollouts cannot be trained exactly ({kinds})"] if kinds else []
    return ", ".join(reasons) or f"it had {report.num_rollouts} rollouts"


def _not_learned(report: StepProgress) -> list[str]:
    """Return what else of a step its update does not learn from, beside rollouts that cannot be trained."""
    reasons = (
        (
            report.num_dead_groups,
            "group has equal rewards and teaches nothing",
            "groups have equal rewards and teach nothing",
        ),
        (report.num_null_rewards, "rollout has no reward", "rollouts have no reward"),
        (report.num_stale_rollouts, "rollout was too old", "rollouts were too old"),
    )
    return [f"{num} {one if num == 1 else many}" for num, one, many in reasons if num]


def mean_advantage(trained: TrainedTokens) -> float | None:
    """Return the mean advantage of the tokens in the loss; None: there are none."""
    counted = [value for value, is_in in zip(trained.advantages, trained.mask, strict=True) if is_in]
    return mean(counted) if counted else None


def read_group(source: ReadContext, group_id: str) -> Group | None:
    """Return a closed group; None: it is open, or unknown."""
    stored = source.store.redis.get(source.store.keys.group(group_id))
    found = decode(stored) if isinstance(stored, bytes) else None
    return found if isinstance(found, Group) else None


def _members(source: ReadContext, group_id: str) -> list[str]:
    group = read_group(source, group_id)
    return group.trajectory_ids if group else []


def read_whole(source: ReadContext, rows: Collection[TrajectoryRow]) -> tuple[dict[str, Trajectory], dict[str, str]]:
    """Return trajectories by id, and why others are damaged; the index still has the rows of these."""
    errors: list[CorruptRecordError] = []
    read = source.store.read(rows, contents=False, on_corrupt=errors.append)
    found = {row.trajectory_id: whole for row, whole in read}
    damaged: dict[str, str] = {}
    for row in rows if errors else ():
        if row.trajectory_id not in found:  # once more alone: an error does not name its trajectory
            again: list[CorruptRecordError] = []
            for _ in source.store.read([row], contents=False, on_corrupt=again.append):
                pass
            damaged.update((row.trajectory_id, str(error)) for error in again)
    return found, damaged


def _lane(
    batch: TrainedBatch,
    rollout: TrainedRollout,
    row: TrajectoryRow | None,
    whole: Trajectory | None,
    damaged: str | None,
) -> Lane:
    trained = next((one for one in whole.trained if one.batch_id == batch.batch_id), None) if whole else None
    started = whole.started if whole else None
    ends = _phase_ends(whole)
    return Lane.from_record(
        rollout,
        task_id=row.task_id if row else None,
        damaged=damaged,
        reward_now=row.reward if row else None,
        policy_min=row.policy_min if row else None,
        policy_max=row.policy_max if row else None,
        num_tokens=len(trained.mask) if trained else None,
        num_trained=sum(trained.mask) if trained else None,
        advantage=mean_advantage(trained) if trained else None,
        queued_at=ends[0],
        started_at=started.started_at if started else None,
        prepared_at=ends[1],
        run_ended_at=ends[2],
        scored_at=ends[3],
        sealed_at=ends[4],
        accepted_at=whole.accepted.accepted_at if whole and whole.accepted else None,
        trained_at=batch.trained_at,
    )


def _phase_ends(whole: Trajectory | None) -> tuple[float | None, ...]:
    """Return when it was queued, prepared, had run, was scored and sealed; None from the first unknown phase on."""
    if whole is None or whole.started is None or whole.outcome is None:
        return (None,) * 5
    times, began = whole.outcome.times, whole.started.started_at
    queued = None if times.queued_seconds is None else began - times.queued_seconds
    phases = (times.prepare_seconds, times.run_seconds, times.score_seconds, times.seal_seconds)
    known = phases[: phases.index(None)] if None in phases else phases
    ends = list(accumulate((seconds or 0.0 for seconds in known), initial=began))[1:]
    return (queued, *ends, *(None for _ in range(4 - len(ends))))


def _groups(batch: TrainedBatch) -> list[GroupLine]:
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for rollout in batch.rollouts:
        rewards[rollout.group_id].append(rollout.reward)
    return [
        GroupLine(group_id=name, num=len(found), reward_mean=mean(found), is_zero_std=len(set(found)) == 1)
        for name, found in rewards.items()
    ]
