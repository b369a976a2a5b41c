"""Closed groups as samples, and counts of a step. Pure.

A group is trained whole or not at all: without its late rollouts, its baseline would be that of the fast ones. Since a
step waits for the groups of its own positions, no rollout is late as long as each version follows the one before. It
happens when a killed trainer has left later versions, or when an engine falls back to earlier weights.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Final

import msgspec

from agent_layer.infra import mean
from agent_layer.schema import (
    SELF_INFLICTED,
    ExcludedRollout,
    Fill,
    Group,
    HeldOutTasks,
    LengthRule,
    Trajectory,
    current_rewards,
)
from agent_layer.store import GroupDelivery
from trainer_adapter.algorithms import Credit
from trainer_adapter.data.advantages import GroupSamples
from trainer_adapter.data.capture import CaptureCounts, count_capture
from trainer_adapter.data.credit import (
    BY_ROLLOUT,
    CreditRule,
    RolloutSamples,
    differ,
    effective_rewards,
    find_turns,
    find_unscored,
    sum_agent_rewards,
)
from trainer_adapter.data.faults import exclude
from trainer_adapter.data.lengths import (
    LONG_ROW,
    NO_BOUNDS,
    ModelBounds,
    find_misfit,
    fit_rows,
    is_overlong,
    known_reward,
)
from trainer_adapter.data.max_staleness import is_too_old, list_ages
from trainer_adapter.data.samples import SampleSet, read_samples

WHOLE: Final = LengthRule()
"""Everything is trained, whatever its length."""
_MIN_REWARDS = 2
"""Fewest rewards with a baseline: a single rollout would be compared with itself."""


class GroupIntake(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One delivered group as samples."""

    group: Group
    samples: GroupSamples
    """Samples of the rollouts that can be trained; empty when the group is stale."""
    rewards: list[float | None]
    """[num_accepted], excluded rollouts included; None also for overlong ones where these count as unknown."""
    ages: list[int]
    """[num_trained_tokens] versions between the sampling of each token and the weights that train on it."""
    num_stale_rollouts: int
    """Rollouts with a token that is too old."""
    num_calls: int
    num_dropped_steps: int
    overlong: list[str]
    """Trajectories of rollouts that were too long, however they are treated."""
    num_cut_tokens: int
    """Sampled tokens beyond the longest row."""
    capture: CaptureCounts
    num_self_inflicted: int = 0
    """Rollouts whose own commands ended a sandbox or used up their time."""
    engines: dict[str, str] = {}
    """Address of the engine of each call, by call id; calls whose engine is not known are left out."""
    excluded: list[ExcludedRollout] = []
    """Rollouts that cannot be trained exactly."""
    rule: CreditRule = BY_ROLLOUT
    """How values follow from rewards."""

    @property
    def is_stale(self) -> bool:
        """Whether one of its rollouts is too old; none of it is trained then, and it is redone."""
        return self.num_stale_rollouts > 0

    @property
    def is_void(self) -> bool:
        """Whether it has too few rewards to train on; it is not part of a step then."""
        num_rewards = sum(rollout.reward is not None for rollout in self.samples.rollouts)
        return num_rewards < _MIN_REWARDS

    @property
    def fill(self) -> Fill:
        """Whether as many rollouts as requested have rewards."""
        is_short = sum(reward is not None for reward in self.rewards) < self.group.group_size
        return self.group.fill or ("short" if is_short else "whole")

    @property
    def num_null_rewards(self) -> int:
        """Rollouts without a reward, dead and refilled ones included. A dropped group may have rewards."""
        num_known = sum(reward is not None for reward in self.rewards)
        if self.fill == "dropped":
            num_known = self.group.num_usable or 0
        return self.num_rollouts - num_known

    @property
    def num_rollouts(self) -> int:
        """Requested rollouts, or accepted ones when these are more."""
        return max(self.group.group_size, len(self.rewards))

    @cached_property
    def teaches(self) -> bool:
        """Whether any of its values differ, rewards or parts of them.

        Kept, because a step asks at each delivery, and the length of a rollout may count.
        """
        return differ(self.samples.rollouts, self.rule)


class StepCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the groups of one step, as its report names them (``StepProgress``)."""

    num_rollouts: int
    """Requested rollouts, dead ones included."""
    num_null_rewards: int
    num_dead_groups: int
    num_whole_groups: int
    num_short_groups: int
    num_dropped_groups: int
    num_surplus_rollouts: int
    kept_seconds: float | None
    """Mean over the usable rollouts of groups with a surplus."""
    surplus_seconds: float | None
    num_stale_rollouts: int
    redone_by_task: dict[str, int]
    """Stale groups by task id."""
    untrainable: dict[str, int]
    """Rollouts that could not be trained exactly, by kind of the reason."""
    num_dropped_steps: int
    num_overlong: int
    self_inflicted: dict[str, int]
    """Rollouts whose own commands ended a sandbox or used up their time, by task id."""
    cut_tokens: dict[str, int]
    """Sampled tokens beyond the longest row, by task id."""
    num_calls: int
    num_tokens: int
    reward_mean: float | None
    staleness_mean: float
    staleness_max: int
    num_fake_zeros: int
    num_gaps: int
    num_forks: int


def read_group(  # noqa: PLR0913  # a group, and the rules by which it is read
    delivery: GroupDelivery,
    policy_version: int,
    max_staleness: int,
    rule: CreditRule = BY_ROLLOUT,
    lengths: LengthRule = WHOLE,
    bounds: ModelBounds = NO_BOUNDS,
    *,
    held_out: HeldOutTasks | None = None,
    accepts_shared_judge: bool = True,
) -> GroupIntake:
    """Turn the trajectories of a group into samples.

    Args:
        delivery: the group.
        policy_version: of the weights that train on it.
        max_staleness: largest age of a token in versions; a rollout with an older token makes the group stale.
        rule: how values follow from rewards.
        lengths: what is trained of rollouts that are too long.
        bounds: of the model; a rollout with a row beyond them is left out.
        held_out: tasks that are not trained; a rollout that repeats one is left out.
        accepts_shared_judge: whether rollouts are trained whose judged code could force a reward.
    """
    read = [
        (
            one,
            find_held_out(one, held_out)
            or (None if accepts_shared_judge else find_shared_judge(one))
            or read_rollout(one, rule.credit, lengths, bounds),
        )
        for one in delivery.trajectories
    ]
    usable = [(trajectory, found) for trajectory, found in read if isinstance(found, SampleSet)]
    num_stale = sum(is_too_old(found, policy_version, max_staleness) for _, found in usable)
    trained = [] if num_stale else usable
    return GroupIntake(
        group=delivery.group,
        samples=GroupSamples(
            group_id=delivery.group.group_id,
            task_id=delivery.group.task_id,
            rollouts=[make_rollout_samples(trajectory, found, rule.credit, lengths) for trajectory, found in trained],
        ),
        rewards=[known_reward(trajectory, lengths) for trajectory, _ in read],
        ages=[age for _, found in trained for age in list_ages(found, policy_version)],
        num_stale_rollouts=num_stale,
        num_calls=sum(len({step.call_id for step in trajectory.steps}) for trajectory, _ in read),
        num_dropped_steps=sum(len(found.drops) for _, found in usable),
        overlong=[one.trajectory_id for one in delivery.trajectories if is_overlong(one)],
        num_cut_tokens=sum(cut.num_tokens for _, found in trained for cut in found.cuts if cut.reason == LONG_ROW),
        excluded=[found for _, found in read if isinstance(found, ExcludedRollout)],
        rule=rule,
        capture=count_capture(delivery.trajectories),
        num_self_inflicted=sum(
            one.outcome is not None and SELF_INFLICTED in one.outcome.findings for one in delivery.trajectories
        ),
        engines={step.call_id: step.engine for one in delivery.trajectories for step in one.steps if step.engine},
    )


def count_step(groups: Sequence[GroupIntake], *, compares_groups: bool = True) -> StepCounts:
    """Return the counts of one step.

    Args:
        groups: of the step.
        compares_groups: whether the baseline is the group; else it is the whole step.
    """
    rewards = [reward for group in groups for reward in group.rewards if reward is not None]
    ages = [age for group in groups for age in group.ages]
    fills = Counter(group.fill for group in groups)
    cut = [group.group for group in groups if group.group.num_surplus]
    return StepCounts(
        num_rollouts=sum(group.num_rollouts for group in groups),
        num_null_rewards=sum(group.num_null_rewards for group in groups),
        num_dead_groups=_count_dead(groups, compares_groups=compares_groups),
        num_whole_groups=fills["whole"],
        num_short_groups=fills["short"],
        num_dropped_groups=fills["dropped"],
        num_surplus_rollouts=sum(group.num_surplus for group in cut),
        kept_seconds=_mean((group.num_usable or 0, group.kept_seconds) for group in cut),
        surplus_seconds=_mean((group.num_surplus, group.surplus_seconds) for group in cut),
        num_stale_rollouts=sum(group.num_stale_rollouts for group in groups),
        redone_by_task=dict(Counter(group.group.task_id for group in groups if group.is_stale)),
        untrainable=dict(Counter(one.kind for group in groups for one in group.excluded)),
        num_dropped_steps=sum(group.num_dropped_steps for group in groups),
        num_overlong=sum(len(group.overlong) for group in groups),
        self_inflicted=_count_by_task(groups, lambda group: group.num_self_inflicted),
        cut_tokens=_count_by_task(groups, lambda group: group.num_cut_tokens),
        num_calls=sum(group.num_calls for group in groups),
        num_tokens=len(ages),
        reward_mean=mean(rewards) if rewards else None,
        staleness_mean=sum(ages) / len(ages) if ages else 0.0,
        staleness_max=max(ages, default=0),
        **msgspec.structs.asdict(sum((group.capture for group in groups), CaptureCounts())),
    )


def success_by_task(groups: Sequence[GroupIntake], above: float) -> dict[str, float]:
    """Return the share of rollouts with a reward above ``above``, by task id, without rollouts that have no reward."""
    found: dict[str, list[bool]] = {}
    for group in groups:
        known = [reward > above for reward in group.rewards if reward is not None]
        found.setdefault(group.group.task_id, []).extend(known)
    return {task_id: sum(known) / len(known) for task_id, known in found.items() if known}


def _count_dead(groups: Sequence[GroupIntake], *, compares_groups: bool) -> int:
    """Count groups whose values equal all with which they are compared."""
    fresh = [group for group in groups if not group.is_stale]
    everything = [rollout for group in fresh for rollout in group.samples.rollouts]
    if not compares_groups and fresh and differ(everything, fresh[0].rule):
        return 0
    return sum(not group.teaches for group in fresh)


def _count_by_task(groups: Iterable[GroupIntake], count: Callable[[GroupIntake], int]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for group in groups:
        found[group.group.task_id] += count(group)
    return dict(+found)


def _mean(parts: Iterable[tuple[int, float | None]]) -> float | None:
    """Return the weighted mean of (number of members, mean); None without members."""
    known = [(num, value) for num, value in parts if value is not None]
    total = sum(num for num, _ in known)
    return sum(num * value for num, value in known) / total if total else None


def make_rollout_samples(
    trajectory: Trajectory, found: SampleSet, credit: Credit = "rollout", lengths: LengthRule = WHOLE
) -> RolloutSamples:
    """Return samples and rewards of a rollout, with the judgements from which the rewards follow."""
    return RolloutSamples(
        trajectory_id=trajectory.trajectory_id,
        reward=known_reward(trajectory, lengths),
        samples=found.samples,
        num_cut_tokens=sum(cut.num_tokens for cut in found.cuts),
        reward_ids=[reward.reward_id for reward in effective_rewards(trajectory, credit)],
        turns=find_turns(trajectory, credit),
        agent_rewards=sum_agent_rewards(trajectory, credit),
    )


def find_held_out(trajectory: Trajectory, held_out: HeldOutTasks | None) -> ExcludedRollout | None:
    """Return why a rollout may not be learned from: its task repeats a held-out one; None: it may."""
    if held_out is None:
        return None
    input_hash = trajectory.started.input_hash if trajectory.started else None
    match = held_out.find_refusal(trajectory.task, input_hash)
    return match and exclude(trajectory, "held_out", f"its task {match}; held-out tasks are not trained")


def find_shared_judge(trajectory: Trajectory) -> ExcludedRollout | None:
    """Return why a rollout may not be learned from: its judged code could force a reward; None: it may."""
    shared = next((one for one in current_rewards(trajectory.rewards) if one.judge == "shared"), None)
    return shared and exclude(
        trajectory,
        "shared_judge",
        f"its reward {shared.name!r} is of {shared.scorer}, which shares an interpreter with the judged code; train"
        " with --accept-shared-judge, or judge it by another scorer",
    )


def read_rollout(
    trajectory: Trajectory, credit: Credit, lengths: LengthRule = WHOLE, bounds: ModelBounds = NO_BOUNDS
) -> SampleSet | ExcludedRollout:
    """Return the samples of a rollout, or why it is left out."""
    found = read_samples(trajectory)
    if isinstance(found, ExcludedRollout):
        return found
    if (unscored := find_unscored(trajectory, credit)) is None:
        fitted = fit_rows(trajectory, found, lengths)
        if isinstance(fitted, ExcludedRollout):
            return fitted
        return find_misfit(trajectory, fitted.samples, bounds) or fitted
    subject = f"step {unscored.step}" if unscored.scope == "step" else f"agent {unscored.agent!r}"
    return ExcludedRollout(
        trajectory_id=trajectory.trajectory_id,
        kind="unscored",
        reason=f"trajectory {trajectory.trajectory_id}: credit {credit!r} needs a score of each judgement, but that of"
        f" {subject}, {unscored.name!r}, has the status {unscored.status!r}; judge it again",
    )
