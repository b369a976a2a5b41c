"""Selection of rollouts to train: those with a reward, in groups whose values differ; and their advantages.

A rollout that failed for no fault of the policy has no reward: it is not in the baseline of its group and not trained.
Rewards count once per rollout, however many samples it has.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import isfinite, sqrt
from statistics import fmean, stdev, variance
from typing import NamedTuple, TypeAlias, cast

import msgspec

from agent_layer.errors import BadInputError, EmptyGroupError
from agent_layer.schema import AdvantageRule, DistillRule, Logprobs, Record, TrainingSample
from envs import code_version
from trainer_adapter.algorithms import ADVANTAGES, CREDITS, Credit, ResolvedAlgorithm, find_part
from trainer_adapter.data.credit import BY_ROLLOUT, CreditRule, RolloutSamples, Turn, differ, find_values

_EPSILON = 1e-6
"""Added to the deviation, as veRL does."""
_EPSILON_OF_BATCH = 1e-8
"""Added to the variance of a batch, as veRL does."""
_MIN_COMPARED = 2
_HUGE, _DOWN = 2.0**500, 2.0**-600
"""Beyond it a float does not hold the squares; a power of two changes no digit."""


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
    credit: Credit = "rollout"
    turns: list[list[Turn]] = []
    """[num_rollouts] answered calls of the policy, in order; empty with credit ``rollout``."""
    agent_rewards: list[dict[str, float]] = []
    """[num_rollouts] rewards by agent; empty with credit ``rollout``."""
    num_cut_tokens: list[int] = []
    """[num_rollouts] sampled tokens that are not trained because rollout or row is too long; empty: none."""
    teacher_logprobs: list[Logprobs] = []
    """[num_rows][num_response_tokens] of the teacher, 0.0 where loss_mask is 0; empty: no teacher. They do not follow
    from stored steps, so no hash has them."""

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(set(self.group_ids))


class JudgedValues(NamedTuple):
    """What an estimator of a user sees of a batch: columns of [num_values]."""

    values: list[float]
    """Each judges a rollout, a turn or an agent, as ``algorithm.credit`` says."""
    baselines: list[str]
    """Values with the same name are of one group and one place: they are compared."""
    num_tokens: list[int]
    """Trained tokens that the value judges."""


AdvantageContract: TypeAlias = Callable[..., Sequence[float]]
"""``advantage(judged, **options)`` returns [num_values], from the values alone and whatever their order.

The advantages of a group follow from its own values. Where they follow from the whole batch, the function has an
attribute ``compares_groups = False``; then groups of equal values stay in the batch."""


class Credits(msgspec.Struct, frozen=True, kw_only=True):
    """Values of a batch, and the tokens that each of them judges."""

    values: list[float]
    """[num_values]."""
    baselines: list[str]
    """[num_values]; values with the same name are compared."""
    spans: list[list[tuple[int, int, int]]]
    """[num_rows] (first token, number of tokens, index into ``values``), positions in ``response_ids``."""
    num_tokens: list[int] = []
    """[num_values] trained tokens that it judges."""


def select_batch(groups: Iterable[GroupSamples], *, keep_equal: bool, rule: CreditRule = BY_ROLLOUT) -> TrainingBatch:
    """Return the batch of all rollouts that may teach, in order. A rollout without samples still counts in its
    baseline.

    Args:
        groups: of one step.
        keep_equal: keep groups whose values are all equal. Where the group is the baseline their advantage is 0, but
            entropy bonus and KL penalty act on them: only these can change the policy on a task that always fails in
            the same way.
        rule: how values follow from rewards.
    """
    kept: list[tuple[str, RolloutSamples]] = []
    for group in groups:
        judged = [rollout for rollout in group.rollouts if rollout.reward is not None]
        if len(judged) > 1 if keep_equal else differ(judged, rule):
            kept += [(group.group_id, rollout) for rollout in judged]
    return make_batch(kept, rule.credit)


def make_batch(rollouts: Sequence[tuple[str, RolloutSamples]], credit: Credit = "rollout") -> TrainingBatch:
    """Return a batch of rollouts, each with the id of its group, in their order. Each must have a reward."""
    samples = [(position, sample) for position, (_, rollout) in enumerate(rollouts) for sample in rollout.samples]
    has_parts = credit != "rollout"
    num_cut = [rollout.num_cut_tokens for _, rollout in rollouts]
    return TrainingBatch(
        group_ids=[group_id for group_id, _ in rollouts],
        trajectory_ids=[rollout.trajectory_id for _, rollout in rollouts],
        rewards=[rollout.reward or 0.0 for _, rollout in rollouts],
        reward_ids=[rollout.reward_ids for _, rollout in rollouts],
        samples=[sample for _, sample in samples],
        rollout_of=[position for position, _ in samples],
        credit=credit,
        turns=[rollout.turns for _, rollout in rollouts] if has_parts else [],
        agent_rewards=[rollout.agent_rewards for _, rollout in rollouts] if has_parts else [],
        num_cut_tokens=num_cut if any(num_cut) else [],
        teacher_logprobs=[found for _, rollout in rollouts for found in rollout.teacher_logprobs],
    )


def assign_credit(batch: TrainingBatch, rule: CreditRule) -> Credits:
    """Return the values of a batch and the tokens that each of them judges; see ``credit`` for the formulas."""
    values: list[float] = []
    baselines: list[str] = []
    place_of: dict[tuple[int, str | None], int] = {}
    for position, rollout in enumerate(_list_rollouts(batch)):
        for one in find_values(rollout, rule):
            place_of |= dict.fromkeys([(position, part) for part in one.calls or [one.part]], len(values))
            values.append(one.value)
            baselines.append(f"{batch.group_ids[position]} {one.place}")
    spans: list[list[tuple[int, int, int]]] = []
    for position, sample in zip(batch.rollout_of, batch.samples, strict=True):
        if rule.credit in ("rollout", "agent"):
            part = sample.agent if rule.credit == "agent" else None
            spans.append([(0, len(sample.response_ids), place_of[position, part])])
        else:
            spans.append([(ref.start, ref.num_tokens, place_of[position, ref.call_id]) for ref in sample.steps])
    counts = Counter[int]()
    for sample, row in zip(batch.samples, spans, strict=True):
        for start, size, value in row:
            counts[value] += sum(sample.loss_mask[start : start + size])
    num_tokens = [counts[value] for value in range(len(values))]
    return Credits(values=values, baselines=baselines, spans=spans, num_tokens=num_tokens)


def _list_rollouts(batch: TrainingBatch) -> list[RolloutSamples]:
    """Return the rollouts from which the batch was made."""
    samples: list[list[TrainingSample]] = [[] for _ in batch.rewards]
    for position, sample in zip(batch.rollout_of, batch.samples, strict=True):
        samples[position].append(sample)
    return [
        RolloutSamples(
            trajectory_id=batch.trajectory_ids[position],
            reward=reward,
            samples=samples[position],
            num_cut_tokens=batch.num_cut_tokens[position] if batch.num_cut_tokens else 0,
            turns=batch.turns[position] if batch.turns else [],
            agent_rewards=batch.agent_rewards[position] if batch.agent_rewards else {},
        )
        for position, reward in enumerate(batch.rewards)
    ]


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
    if len(set(known)) == 1:
        return [None if reward is None else 0.0 for reward in rewards]
    unit = _find_unit(known)
    known = [reward * unit for reward in known]
    mean, scale = fmean(known), stdev(known) + _EPSILON * unit if scale_by_std else unit
    return [None if reward is None else (reward * unit - mean) / scale for reward in rewards]


def _find_unit(values: Iterable[float]) -> float:  # kept: its two callers shrink alike
    """Return the power of two by which values are multiplied before they are squared; 1 unless they are huge."""
    return _DOWN if max(map(abs, values)) > _HUGE else 1.0


def advantage_rule(algorithm: ResolvedAlgorithm) -> AdvantageRule:
    """Return what an update computes advantages by, for its record."""
    penalty, distill = algorithm.overlong_penalty, algorithm.distill
    return AdvantageRule(
        estimator=algorithm.advantage or algorithm.estimator,
        options=algorithm.advantage_options,
        credit_options=algorithm.credit_options,
        code=_list_code(algorithm),
        scale_by_std=algorithm.scale_by_std,
        discount=algorithm.discount,
        overlong_tokens=penalty.max_tokens if penalty else None,
        overlong_buffer=penalty.buffer_tokens if penalty else None,
        can_reject=bool(algorithm.correction.reject),
        distill=distill
        and DistillRule(
            teacher=distill.teacher.model,
            coefficient=distill.coefficient,
            replaces_rewards=distill.replace_rewards,
        ),
    )


def _list_code(algorithm: ResolvedAlgorithm) -> dict[str, str]:
    """Return the version of each part of users that advantages follow from."""
    found: dict[str, object] = {}
    if algorithm.advantage is not None:
        found["advantage"] = find_part(ADVANTAGES, algorithm.advantage, algorithm.advantage_options)
    if algorithm.credit not in ("rollout", "turn", "agent"):
        found["credit"] = find_part(CREDITS, algorithm.credit, algorithm.credit_options)
    return {name: code_version(part) or "" for name, part in found.items()}


def find_changed_code(rule: AdvantageRule, credit: str) -> str | None:
    """Return the name of the first part of users whose code is missing, or not that of the record; None: none."""
    for what, version in rule.code.items():
        is_credit = what == "credit"
        kind, name = (CREDITS, credit) if is_credit else (ADVANTAGES, rule.estimator)
        try:
            found = find_part(kind, name, rule.credit_options if is_credit else rule.options)
        except BadInputError:
            return name
        if (code_version(found) or "") != version:
            return name
    return None


def value_advantages(judged: Credits, rule: AdvantageRule) -> list[float]:
    """Return [num_values] advantages that follow from rewards.

    ``grpo``: see ``group_advantages``. ``rloo``: the value without the mean of the others (Ahmadian et al. 2024).
    ``reinforce++``: centred over the batch and divided by its deviation (Hu et al. 2025). Another name: a user's.
    Computed in float64: in float32 equal rewards differ from their mean by a rounding, which the division by their
    deviation makes an advantage of 0.056 (seven times 0.7).
    """
    values = judged.values
    if rule.distill is not None and rule.distill.replaces_rewards:
        return [0.0] * len(values)
    if rule.estimator not in ("grpo", "rloo", "reinforce++"):
        advantage = cast("AdvantageContract", find_part(ADVANTAGES, rule.estimator, rule.options))
        seen = JudgedValues(values, judged.baselines, judged.num_tokens)
        return check_estimate(rule.estimator, seen, advantage(seen, **rule.options))
    if rule.estimator == "reinforce++":
        return _whiten(values)
    members: dict[str, list[int]] = {}
    for position, name in enumerate(judged.baselines):
        members.setdefault(name, []).append(position)
    found = [0.0] * len(values)
    for positions in members.values():
        group = [values[position] for position in positions]
        factor = len(group) / (len(group) - 1) if rule.estimator == "rloo" and len(group) > 1 else 1.0
        for position, one in zip(positions, group_advantages(group, scale_by_std=rule.scale_by_std), strict=True):
            found[position] = factor * (one or 0.0)
    return found


def spread_advantages(batch: TrainingBatch, algorithm: ResolvedAlgorithm) -> list[list[float]]:
    """Return [num_rows][num_response_tokens] advantages that follow from rewards, 0 where ``loss_mask`` is.

    A value is a rollout's, a turn's or an agent's. One that is compared with no other has the advantage 0.
    """
    judged = assign_credit(batch, CreditRule.of(algorithm))
    values = value_advantages(judged, advantage_rule(algorithm))
    rows = [[0.0] * len(sample.response_ids) for sample in batch.samples]
    for row, sample, spans in zip(rows, batch.samples, judged.spans, strict=True):
        for start, size, value in spans:
            row[start : start + size] = [values[value] * trained for trained in sample.loss_mask[start : start + size]]
    return rows


def check_estimate(name: str, judged: JudgedValues, found: Sequence[float]) -> list[float]:
    """Return the advantages that an estimator of a user gives.

    Raises: BadInputError: they are no finite number for each value.
    """
    advantages = [float(one) for one in found]
    if len(advantages) != len(judged.values) or not all(map(isfinite, advantages)):
        raise BadInputError(
            f"algorithm.advantage {name!r}: expected a finite number for each of {len(judged.values)} values, found"
            f" {len(advantages)}: {advantages[:8]}"
        )
    return advantages


def _whiten(values: Sequence[float]) -> list[float]:  # kept: the name of the formula
    if len(values) < _MIN_COMPARED:
        return [0.0] * len(values)
    unit = _find_unit(values)
    values = [value * unit for value in values]
    mean, scale = fmean(values), sqrt(variance(values) + _EPSILON_OF_BATCH * unit * unit)
    return [(value - mean) / scale for value in values]
