"""Which stored trajectories may become training data, decided in one place: ``find_objection``.

Trajectories come group by group, so that best-of-n and pairs compare the rollouts of one task. Only the rows of the
index are in memory, and the trajectories of one group.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby

import msgspec

from agent_layer.errors import CorruptRecordError
from agent_layer.schema import FINAL_STATUSES, ExcludedRollout, HeldOutTasks, TrainingSample, Trajectory
from agent_layer.store import Filters, Store, TrajectoryRow
from trainer_adapter.data import SampleSet, exclude, find_held_out, read_samples

_CUT_OFF = "length"


class SelectionRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind of dataset asks of a trajectory beside being whole."""

    needs_reward: bool = False
    mixed_versions: bool = False
    """Whether tokens of several policy versions may stand in one trajectory."""


class UsableRollout(msgspec.Struct, frozen=True, kw_only=True):
    """A trajectory without objection."""

    trajectory: Trajectory
    samples: list[TrainingSample]

    @property
    def reward(self) -> float | None:
        """Reward of the rollout; None: not known."""
        return self.trajectory.reward


class Account(msgspec.Struct, kw_only=True):
    """Counts of a selection; they grow while it is read."""

    num_found: int = 0
    """Trajectories that match the filters."""
    left_out: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Trajectories that were not used, by kind of the objection."""
    reasons: dict[str, str] = {}
    """First sentence of each kind."""
    model_names: set[str] = msgspec.field(default_factory=set[str])
    tokenizer_hashes: set[str] = msgspec.field(default_factory=set[str])
    versions: set[int] = msgspec.field(default_factory=set[int])
    """Policy versions that sampled the trained tokens."""

    def refuse(self, objection: ExcludedRollout) -> None:
        """Count a trajectory that is not used."""
        self.left_out[objection.kind] += 1
        self.reasons.setdefault(objection.kind, objection.reason)

    def refuse_unreadable(self, error: CorruptRecordError) -> None:
        """Count a trajectory whose stored bytes are damaged."""
        self.left_out["unreadable"] += 1
        self.reasons.setdefault("unreadable", str(error))

    def count_used(self, rollout: UsableRollout) -> None:
        """Note what sampled a trajectory that is used."""
        policy = [step for step in rollout.trajectory.steps if step.role == "policy"]
        self.model_names |= {step.model for step in policy if step.model}
        self.tokenizer_hashes |= {step.tokenizer_hash for step in policy if step.tokenizer_hash}
        self.versions |= {version for sample in rollout.samples for version in sample.versions if version >= 0}


def find_objection(
    trajectory: Trajectory,
    found: SampleSet | ExcludedRollout,
    rule: SelectionRule,
    held_out: HeldOutTasks | None = None,
) -> ExcludedRollout | None:
    """Return why a trajectory may not become training data; None: it may.

    Deleted trajectories do not come this far: the store answers without them.

    Args:
        trajectory: as it is stored.
        found: its samples, or why it has none: of another split than train, or captured without exact tokens.
        rule: of the kind of dataset.
        held_out: tasks whose repetitions may not; None: none.
    """
    if isinstance(found, ExcludedRollout):
        return found
    if (repeated := find_held_out(trajectory, held_out)) is not None:
        return repeated
    objections = chain(_list_faults_of_end(trajectory), _list_faults_of_rows(trajectory, found.samples, rule))
    return next((exclude(trajectory, kind, reason) for kind, reason in objections), None)


def _list_faults_of_end(trajectory: Trajectory) -> Iterator[tuple[str, str]]:
    outcome = trajectory.outcome
    if outcome is None or outcome.status not in FINAL_STATUSES:
        yield "unfinished", "expected its end, found none; export it once it has ended"
        return
    if trajectory.accepted is None:
        yield "not_accepted", "another attempt counts for its rollout, or none; leave it out"
    answered = (step for step in trajectory.steps if step.role == "policy" and step.status == "ok")
    if outcome.status == "truncated" or any(step.action.finish_reason == _CUT_OFF for step in answered):
        yield "cut_short", "a limit ended it or one of its answers; give its tasks more room"
    if outcome.status != "completed":
        yield "not_completed", f"expected status completed, found {outcome.status!r}; look at it"


def _list_faults_of_rows(
    trajectory: Trajectory, samples: Sequence[TrainingSample], rule: SelectionRule
) -> Iterator[tuple[str, str]]:
    if not samples:
        yield "no_tokens", "expected a token that the policy sampled, found none; look at it"
    if rule.needs_reward and trajectory.reward is None:
        yield "no_reward", "expected a reward to compare it by, found none; judge it"
    versions = {version for sample in samples for version in sample.versions if version >= 0}
    if len(versions) > 1 and not rule.mixed_versions:
        span = f"policy versions {min(versions)} to {max(versions)}"
        yield "mixed_versions", f"{span} sampled it; use --mixed-versions if that may be"


def read_usable(  # noqa: PLR0913  # what is looked at, by which rules
    store: Store,
    filters: Filters,
    rule: SelectionRule,
    account: Account,
    *,
    held_out: Callable[[str], HeldOutTasks] = lambda _: HeldOutTasks([]),
    contents: bool = False,
    progress: Callable[[int, int], object] = lambda _, __: None,
) -> Iterator[list[UsableRollout]]:
    """Yield the usable rollouts of each group that has some, in order of the group's first start.

    Rollouts that belong to no group are together by run and task.

    Args:
        store: source.
        filters: which trajectories to look at.
        rule: which of them to use.
        account: counts what is found and left out.
        held_out: returns what is held out of trajectories of a run.
        contents: also read messages and tools.
        progress: called with the number of trajectories read, and of all.
    """
    members: dict[str, list[TrajectoryRow]] = {}
    for row in store.scan(**filters):
        members.setdefault(_group_key(row), []).append(row)
        account.num_found += 1
    ordered = chain.from_iterable(members.values())
    read = store.read(ordered, contents=contents, on_corrupt=account.refuse_unreadable)
    num_read = 0
    for _, group in groupby(read, key=lambda one: _group_key(one[0])):
        usable: list[UsableRollout] = []
        for row, trajectory in group:
            num_read += 1
            progress(num_read, account.num_found)
            usable += _admit(trajectory, rule, account, held_out(row.run or ""))
        if usable:
            yield usable
    if deleted := account.num_found - num_read - account.left_out["unreadable"]:
        account.left_out["deleted"] = deleted
        account.reasons["deleted"] = "deleted while the export ran"


def _admit(
    trajectory: Trajectory, rule: SelectionRule, account: Account, held_out: HeldOutTasks
) -> Iterator[UsableRollout]:
    found = read_samples(trajectory)
    if (objection := find_objection(trajectory, found, rule, held_out)) is not None:
        account.refuse(objection)
    elif isinstance(found, SampleSet):
        yield UsableRollout(trajectory=trajectory, samples=found.samples)


def pick_best(rollouts: Sequence[UsableRollout], num: int | None, account: Account) -> Sequence[UsableRollout]:
    """Return the ``num`` rollouts with the highest rewards, ties by id; None: all. Each must have a reward."""
    if num is None:
        return rollouts
    ranked = sorted(rollouts, key=lambda one: (-(one.reward or 0.0), one.trajectory.trajectory_id))
    for worse in ranked[num:]:
        account.refuse(exclude(worse.trajectory, "not_best", f"{num} of its group have higher rewards, or lower ids"))
    return ranked[:num]


def _group_key(row: TrajectoryRow) -> str:
    return f"group {row.group_id}" if row.group_id else f"task {row.run} {row.task_id or row.trajectory_id}"
