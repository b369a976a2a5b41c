"""Selection of rollouts to train: those with a reward, in groups whose rewards differ; and their advantages.

A rollout that failed for no fault of the policy has no reward: it is not in the baseline of its group and not trained.
Rewards count once per rollout, however many samples it has. The rule of veRL's ``grpo`` is repeated here in plain
Python to decide which groups teach anything; tests compare veRL with it.
"""

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

import msgspec

from agent_layer.errors import EmptyGroupError
from agent_layer.schema import Record, TrainingSample

_EPSILON = 1e-6
"""Added to the deviation, as veRL does."""


class RolloutSamples(msgspec.Struct, frozen=True, kw_only=True):
    """Samples and reward of one rollout."""

    trajectory_id: str
    reward: float | None
    """None: not judged."""
    samples: list[TrainingSample]
    reward_ids: list[str] = []
    """Ids of the judgements from which the reward follows."""


class GroupSamples(msgspec.Struct, frozen=True, kw_only=True):
    """The rollouts that share one baseline."""

    group_id: str
    task_id: str
    rollouts: list[RolloutSamples]


class TrainingBatch(Record, frozen=True, kw_only=True):
    """Batch of one update. Its groups have at least two rewards each."""

    group_ids: list[str]
    """[num_rollouts]."""
    trajectory_ids: list[str]
    """[num_rollouts]."""
    rewards: list[float]
    """[num_rollouts]."""
    reward_ids: list[list[str]]
    """[num_rollouts] ids of the judgements from which the reward follows."""
    samples: list[TrainingSample]
    """[num_rows]."""
    rollout_of: list[int]
    """[num_rows], index into ``rewards``: the rollout of each sample."""

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(set(self.group_ids))


def select_batch(groups: Iterable[GroupSamples], *, keep_equal: bool) -> TrainingBatch:
    """Return the batch of all rollouts that may teach, in order. A rollout without samples still counts in its
    baseline.

    Args:
        groups: of one step.
        keep_equal: keep groups whose rewards are all equal. Their advantage is 0, but entropy bonus and KL penalty act
            on them: only these can change the policy on a task that always fails in the same way.
    """
    kept: list[tuple[str, RolloutSamples]] = []
    for group in groups:
        judged = [rollout for rollout in group.rollouts if rollout.reward is not None]
        if len(judged) > 1 if keep_equal else teaches([rollout.reward for rollout in judged]):
            kept += [(group.group_id, rollout) for rollout in judged]
    return make_batch(kept)


def make_batch(rollouts: Sequence[tuple[str, RolloutSamples]]) -> TrainingBatch:
    """Return a batch of rollouts, each with the id of its group, in their order. Each must have a reward."""
    samples = [(position, sample) for position, (_, rollout) in enumerate(rollouts) for sample in rollout.samples]
    return TrainingBatch(
        group_ids=[group_id for group_id, _ in rollouts],
        trajectory_ids=[rollout.trajectory_id for _, rollout in rollouts],
        rewards=[rollout.reward or 0.0 for _, rollout in rollouts],
        reward_ids=[rollout.reward_ids for _, rollout in rollouts],
        samples=[sample for _, sample in samples],
        rollout_of=[position for position, _ in samples],
    )


def teaches(rewards: Sequence[float | None]) -> bool:
    """Whether a group with these rewards has any advantage."""
    known = {reward for reward in rewards if reward is not None}
    return len(known) > 1


def group_advantages(rewards: Sequence[float | None], *, scale_by_std: bool) -> list[float | None]:
    """Centre, and scale if asked, the rewards of rollouts that share one task (GRPO, Shao et al. 2024, eq. 4).

    Args:
        rewards: [group_size]; None where the rollout failed for no fault of the policy.
        scale_by_std: divide by the sample deviation; without it, easy and hard tasks weigh by their spread (Dr. GRPO,
            Liu et al. 2025).

    Returns:
        [group_size], same order; None stays None; all zero when every reward is equal.

    Raises:
        EmptyGroupError: no rollout has a reward.
    """
    known = [reward for reward in rewards if reward is not None]
    if not known:
        raise EmptyGroupError(f"group of {len(rewards)} rollouts: expected a reward for at least one, found none")
    if not teaches(known):
        return [None if reward is None else 0.0 for reward in rewards]
    mean, scale = fmean(known), stdev(known) + _EPSILON if scale_by_std else 1.0
    return [None if reward is None else (reward - mean) / scale for reward in rewards]
