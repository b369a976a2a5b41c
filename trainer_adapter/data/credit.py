"""Credit: which value a token is judged by, and what that value is compared with.

A rollout has one value (credit ``rollout``), or one for each turn, or one for each agent. Values with the same baseline
are compared by the estimator. A value that no other is compared with teaches nothing. With R the reward of the rollout,
the soft overlong penalty included:

* ``rollout``: the value is R; its baseline are the rollouts of the group (Shao et al. 2024).
* ``turn``: the return to go G_k = sum over j >= k of discount^(j-k) r_j. Turn j is the j-th answered call of the
  policy, r_j the sum of the rewards of its step, and R is added to the last. Its baseline are the k-th turns of
  the rollouts of the group that have one (turn-level advantages of Zeng et al. 2025, arXiv 2505.11821, with returns in
  place of single rewards). It may depend on the position, which no action changes: with one mean over all turns, early
  and late turns would gain or lose by their position alone, because fewer rewards follow a late one.
* ``agent``: the value of agent a is R + r_a, its own rewards added to the team's; its baseline are the values of the
  same agent in the group (Zhao et al. 2025, arXiv 2510.11062, with weight 1 of the team's reward).

A credit of a user (``CreditContract``) returns values with the calls that each of them judges.
A rollout with a judgement that has no score is left out: a failed judge is not a 0.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Final, TypeAlias, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import Logprobs, Record, Reward, TrainingSample, Trajectory, counted_score, current_rewards
from trainer_adapter.algorithms import CREDITS, Credit, Options, OverlongPenalty, ResolvedAlgorithm, find_part

_SCOPES = {"rollout": ("rollout",), "turn": ("rollout", "step"), "agent": ("rollout", "agent")}
"""Scopes of the rewards from which values follow; those of a user's credit are all."""
_ALL_SCOPES = ("rollout", "step", "agent")


class Turn(Record, frozen=True, kw_only=True):
    """One answered call of the policy."""

    call_id: str
    agent: str | None = None
    reward: float = 0.0
    """Sum of the rewards of scope step from this call until the next."""


class CreditRule(msgspec.Struct, frozen=True, kw_only=True):
    """How values follow from rewards. Fields mean what they do in ``AlgorithmConfig``."""

    credit: Credit = "rollout"
    options: Options = {}
    """Keyword arguments of a user's credit."""
    discount: float = 1.0
    overlong_penalty: OverlongPenalty | None = None

    @classmethod
    def of(cls, algorithm: ResolvedAlgorithm) -> "CreditRule":
        """Return the rule of an algorithm."""
        penalty = algorithm.overlong_penalty
        return cls(
            credit=algorithm.credit,
            options=algorithm.credit_options,
            discount=algorithm.discount,
            overlong_penalty=penalty,
        )


BY_ROLLOUT: Final = CreditRule()


class RolloutSamples(msgspec.Struct, frozen=True, kw_only=True):
    """Samples and rewards of one rollout."""

    trajectory_id: str
    reward: float | None
    """None: not judged."""
    samples: list[TrainingSample]
    num_cut_tokens: int = 0
    """Sampled tokens that are not trained because rollout or row is too long."""
    reward_ids: list[str] = []
    """Ids of the judgements from which the rewards follow."""
    turns: list[Turn] = []
    """Turns in order; empty with credit ``rollout``."""
    agent_rewards: dict[str, float] = {}
    """Sum of the rewards of each agent; empty with credits ``rollout`` and ``turn``."""
    teacher_logprobs: list[Logprobs] = []
    """[num_samples]; see ``TrainingBatch``."""


class CreditedValue(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a rollout."""

    value: float
    place: str = ""
    """Values of a group with the same place are compared."""
    calls: list[str] = []
    """Ids of the calls whose tokens it judges, of a user's credit."""
    part: str | None = None
    """Call id of the turn, name of the agent, or None for the whole rollout and for an agent without a name."""


class JudgedRollout(msgspec.Struct, frozen=True, kw_only=True):
    """What a user's credit sees of a rollout."""

    reward: float
    """Reward of the rollout, the soft overlong penalty included."""
    turns: list[Turn]
    """Answered calls of the policy, in order, each with the sum of the rewards of its step."""
    agent_rewards: dict[str, float]
    """Sum of the rewards of each agent."""


CreditContract: TypeAlias = Callable[..., Iterable[CreditedValue]]
"""``credit(rollout, **options)`` returns values that together name each call of ``rollout.turns`` once."""


def effective_rewards(trajectory: Trajectory, credit: Credit) -> list[Reward]:
    """Return the current judgements from which values follow, in order of time."""
    return [
        reward for reward in current_rewards(trajectory.rewards) if reward.scope in _SCOPES.get(credit, _ALL_SCOPES)
    ]


def find_unscored(trajectory: Trajectory, credit: Credit) -> Reward | None:
    """Return a judgement of a step or an agent that should count and has no score; None: there is none."""
    parts = (reward for reward in effective_rewards(trajectory, credit) if reward.scope != "rollout")
    return next((reward for reward in parts if counted_score(reward) is None), None)


def find_turns(trajectory: Trajectory, credit: Credit) -> list[Turn]:
    """Return the turns of a trajectory with their rewards; empty with credit ``rollout``.

    A reward of another step, such as a judge's or an aborted one, counts for the turn before it, or for the first.
    """
    if credit == "rollout":
        return []
    answered = [step for step in trajectory.steps if step.role == "policy" and step.status == "ok"]
    starts = {step.call_id: step for step in sorted(answered, key=lambda step: -step.index)}  # the first of its choices
    order = sorted(starts.values(), key=lambda step: step.index)
    totals = [0.0] * len(order)
    for reward in effective_rewards(trajectory, credit):
        if reward.scope == "step" and reward.step is not None and order:
            before = sum(step.index <= reward.step for step in order)
            totals[max(0, before - 1)] += counted_score(reward) or 0.0
    return [
        Turn(call_id=step.call_id, agent=step.agent, reward=total) for step, total in zip(order, totals, strict=True)
    ]


def sum_agent_rewards(trajectory: Trajectory, credit: Credit) -> dict[str, float]:
    """Return the sum of the rewards of each agent; empty with credits ``rollout`` and ``turn``."""
    totals: dict[str, float] = {}
    for reward in effective_rewards(trajectory, credit):
        if reward.scope == "agent" and reward.agent is not None:
            totals[reward.agent] = totals.get(reward.agent, 0.0) + (counted_score(reward) or 0.0)
    return totals


def find_values(rollout: RolloutSamples, rule: CreditRule) -> list[CreditedValue]:
    """Return the values of a judged rollout; without a call of the policy it has one with credit ``rollout`` only."""
    total = (rollout.reward or 0.0) + overlong_reward(rollout, rule.overlong_penalty)
    match rule.credit:
        case "rollout":
            return [CreditedValue(part=None, value=total, place="")]
        case "turn":
            returns = returns_to_go([turn.reward for turn in rollout.turns], total, rule.discount)
            return [
                CreditedValue(part=turn.call_id, value=value, place=str(position))
                for position, (turn, value) in enumerate(zip(rollout.turns, returns, strict=True))
            ]
        case "agent":
            agents = dict.fromkeys(turn.agent for turn in rollout.turns)  # a judge's reward judges no trained token
            return [
                CreditedValue(part=agent, value=total + rollout.agent_rewards.get(agent or "", 0.0), place=repr(agent))
                for agent in agents
            ]
        case name:
            judged = JudgedRollout(reward=total, turns=rollout.turns, agent_rewards=rollout.agent_rewards)
            credit = cast("CreditContract", find_part(CREDITS, name, rule.options))
            return check_credited(name, judged, credit(judged, **rule.options))


def check_credited(name: str, rollout: JudgedRollout, found: Iterable[CreditedValue]) -> list[CreditedValue]:
    """Return the values that a user's credit gives.

    Raises: BadInputError: they are no finite values that name each call once.
    """
    values = list(found)
    if wrong := [one for one in values if not isinstance(one, CreditedValue) or not isfinite(one.value)]:  # pyright: ignore[reportUnnecessaryIsInstance]  # users write credits
        raise BadInputError(f"algorithm.credit {name!r}: expected CreditedValues with finite values, found {wrong[0]}")
    named = Counter(call for one in values for call in one.calls)
    calls = [turn.call_id for turn in rollout.turns]
    if other := sorted({*named, *calls} - {call for call in calls if named[call] == 1}):
        raise BadInputError(
            f"algorithm.credit {name!r}: expected each of {len(calls)} calls in one value, found {other[0]!r} in"
            f" {named[other[0]]}; name the calls of rollout.turns once each"
        )
    return values


def returns_to_go(rewards: Sequence[float], outcome: float, discount: float) -> list[float]:
    """Return G_k = sum over j >= k of discount^(j-k) r_j for each turn k; ``outcome`` is added to the last reward."""
    returns: list[float] = []
    following = outcome
    for position, reward in enumerate(reversed(rewards)):
        following = reward + (discount if position else 1.0) * following
        returns.append(following)
    return returns[::-1]


def overlong_reward(rollout: RolloutSamples, penalty: OverlongPenalty | None) -> float:
    """Return the soft overlong punishment of a rollout, -1 to 0 (DAPO, Yu et al. 2025, eq. 13)."""
    if penalty is None:
        return 0.0
    num_tokens = rollout.num_cut_tokens + sum(sum(sample.loss_mask) for sample in rollout.samples)
    excess = num_tokens - (penalty.max_tokens - penalty.buffer_tokens)
    return -min(1.0, max(0.0, excess / penalty.buffer_tokens))


def differ(rollouts: Sequence[RolloutSamples], rule: CreditRule) -> bool:
    """Whether any two values that are compared in a group of judged rollouts differ."""
    seen: dict[str, float] = {}
    values = [value for rollout in rollouts if rollout.reward is not None for value in find_values(rollout, rule)]
    return any(seen.setdefault(one.place, one.value) != one.value for one in values)
