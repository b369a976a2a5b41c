"""Judgements of a trajectory: rewards, how these become the reward of a rollout, and labels given later."""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Number
from typing import Final, Literal, SupportsFloat, TypeAlias, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema.record import Record, current_version, sortable_time
from agent_layer.schema.rollout import Outcome
from agent_layer.schema.task import RewardSpec

RewardScope: TypeAlias = Literal["rollout", "step", "agent"]
RewardSource: TypeAlias = Literal["rule", "verifier", "judge", "human", "env", "agent"]
RewardStatus: TypeAlias = Literal["ok", "missing", "verifier_error", "infra_error", "timeout", "tampering"]
"""``tampering``: the judged code tried to forge its judgement. Its score is 0, and counts."""
TAMPERING: Final = "tampering"
"""Status of such a reward, and the finding and alarm of its trajectory."""
_MAX_SHOWN_LENGTH = 100
SHARED_JUDGE: Final = "0 of 55 common cheats pay, and 3 of 3 that know its canaries (2026-11-29)"
"""What was measured of a judge that shares an interpreter with the judged code, for people."""
RewardTopic: TypeAlias = tuple[RewardScope, str, int | None, str | None]


class Reward(Record, frozen=True, kw_only=True, tag="reward"):
    """One judgement. Append-only: a later judgement supersedes it, and the history stays."""

    trajectory_id: str
    reward_id: str
    run: str
    at: float
    """Seconds since the epoch, UTC."""
    schema_version: int = msgspec.field(default_factory=current_version)
    name: str = "reward"
    score: float | None = None
    """None when there is no judgement; ``status`` says why."""
    scope: RewardScope = "rollout"
    step: int | None = None
    """Index of the step that is judged, for scope step."""
    agent: str | None = None
    """Name of the agent that is judged, for scope agent."""
    source: RewardSource = "agent"
    status: RewardStatus = "ok"
    scorer: str | None = None
    """Name of the scorer that gave it, as a task names it; None: no scorer did, or an earlier version recorded it."""
    verifier_hash: str | None = None
    """Version of that scorer."""
    error: str | None = None
    comment: str | None = None
    """Comment of the judge, for people; nothing is computed from it."""
    supersedes: str | None = None
    """Reward id of the judgement that this one replaces."""
    judge: Literal["shared"] | None = None
    """``shared``: the judged code shared an interpreter with what judged it, and could force this; None: it did not, or
    an earlier version recorded it."""
    void: bool = False
    """A failed attempt to judge again: never current; the earlier judgement still holds."""


def plain_number(value: object) -> float | None:
    """Return a number of any type as Python's own: NumPy's and torch's scalars, Decimal, Fraction, bool among them.

    Returns: a bool, int or float, perhaps not finite; None: no number, such as a text, or an array of several.
    """
    if type(value) in (bool, int, float):
        return cast("float", value)
    try:
        if isinstance(value, str | bytes | type) or getattr(value, "shape", ()) != ():
            return None
        if not isinstance(value, Number) and not hasattr(type(value), "__float__"):
            return None
        item = getattr(value, "item", None)
        found = item() if callable(item) else value
        return cast("float", found) if type(found) in (bool, int, float) else float(cast("SupportsFloat", found))
    except Exception:  # noqa: BLE001 - a foreign type may raise anything
        return None


def read_score(value: object, subject: str) -> float:
    """Return a score as a float.

    Args:
        value: a number of any type.
        subject: what it is the score of, for the error.

    Raises: BadInputError: it is no number, or not finite.
    """
    number = plain_number(value)
    try:
        score = math.nan if number is None else float(number)
    except OverflowError:
        score = math.inf
    if not math.isfinite(score):
        shown = f" {value!r}"[:_MAX_SHOWN_LENGTH] if number is not None or isinstance(value, str) else ""
        raise BadInputError(
            f"{subject}: expected a finite number, found{shown} of type {type(value).__name__}; give a number, or None"
            " where there is no judgement"
        )
    return score


def current_rewards(rewards: Sequence[Reward]) -> list[Reward]:
    """Return current judgements: not void, not superseded, the newest of each ``reward_topic``; in order of time."""
    replaced = {reward.supersedes for reward in rewards if reward.supersedes is not None}
    standing: dict[RewardTopic, Reward] = {}
    for reward in sorted(rewards, key=lambda reward: (reward.at, reward.reward_id)):
        if reward.reward_id not in replaced and not reward.void:
            standing[reward_topic(reward)] = reward
    return list(standing.values())


def reward_topic(reward: Reward) -> RewardTopic:
    """Return (scope, name, step, agent). One judgement of each is current."""
    return reward.scope, reward.name, reward.step, reward.agent


def counted_score(reward: Reward) -> float | None:
    """Return the score with which a judgement counts: 0 for tampering; None: it has no finite score."""
    if reward.status == TAMPERING:
        return 0.0
    score = reward.score if reward.status == "ok" else None
    return score if score is not None and math.isfinite(score) else None


def rollout_reward(
    declared: Mapping[str, RewardSpec], rewards: Sequence[Reward], outcome: Outcome | None
) -> float | None:
    """Sum the declared rewards of scope rollout.

    Args:
        declared: the task's rewards by name; empty: each reward of scope rollout counts with weight 1.
        rewards: all judgements of one trajectory, in any order.
        outcome: how the attempt ended; None while it runs.

    Returns:
        None when a required reward is absent or has no score that counts, when there is none at all, or when the
        attempt failed for a cause other than the policy. After a failure of the verifier only
        judgements that supersede others count. Never NaN or infinite.
    """
    cause = None if outcome is None else outcome.cause
    if cause in ("infra", "user"):
        return None
    counted = [reward for reward in current_rewards(rewards) if reward.scope == "rollout"]
    standing = {reward.name: reward for reward in counted if cause != "verifier" or reward.supersedes is not None}
    specs = declared or {name: RewardSpec() for name in standing}
    total, num_counted = 0.0, 0
    for name, spec in specs.items():
        reward = standing.get(name)
        score = None if reward is None else counted_score(reward)
        if score is not None:
            total += spec.weight * score
            num_counted += 1
        elif spec.required:
            return None
    return total if num_counted and math.isfinite(total) else None


class Label(Record, frozen=True, kw_only=True, tag="label"):
    """A label given to a trajectory after it began. Append-only: the newest of a name counts, and the history stays."""

    trajectory_id: str
    label_id: str
    run: str
    at: float
    """Seconds since the epoch, UTC."""
    name: str
    schema_version: int = msgspec.field(default_factory=current_version)
    value: str | None = None
    """None: withdrawn. The trajectory has no label of this name, not even the one of its task."""
    source: RewardSource = "human"
    comment: str | None = None
    """Why, for people; nothing is computed from it."""


LabelRank: TypeAlias = tuple[str, str]
"""When, and which, as text that sorts; then the value, so that the order is total."""


def label_rank(label: Label) -> LabelRank:
    """Return the place of a label among those of its name: the one with the highest rank counts."""
    return f"{sortable_time(label.at)} {label.label_id}", label.value or ""


def newest_labels(labels: Iterable[Label]) -> dict[str, Label]:
    """Return the label that counts of each name, withdrawn ones included, in any order of the labels."""
    newest: dict[str, Label] = {}
    for label in labels:
        known = newest.get(label.name)
        if known is None or label_rank(label) > label_rank(known):
            newest[label.name] = label
    return newest


def current_labels(of_task: Mapping[str, str], given: Iterable[Label]) -> dict[str, str]:
    """Return the labels of a trajectory by name: those of its task, superseded or withdrawn by those given later."""
    labels: dict[str, str | None] = {**of_task, **{name: one.value for name, one in newest_labels(given).items()}}
    return {name: value for name, value in labels.items() if value is not None}
