"""This file holds late judgements: people's feedback on what is stored. It is appended; what it replaces stays."""

import math
import time
from collections.abc import Sequence
from typing import TypedDict, cast

import msgspec
from redis import Redis

from agent_layer.errors import BadInputError, CorruptRecordError
from agent_layer.infra.redis import Keys
from agent_layer.schema import (
    Reward,
    RewardSource,
    RewardTopic,
    check_name,
    current_rewards,
    decode,
    encode,
    new_id,
    reward_topic,
)
from agent_layer.store.index import TrajectoryRow

_AGREED_SECONDS = 86_400
"""How long a reward id stays taken: longer than logs wait for an unreachable store."""


class RewardOptions(TypedDict, total=False):
    """What may be said of a judgement beside its score."""

    name: str
    """Which of the task's rewards; ``reward`` when left out."""
    source: RewardSource
    """Who judges; ``human`` when left out."""
    step: int | None
    """Index of the step that is judged; without it and without an agent, the rollout is."""
    agent: str | None
    """Name of the agent that is judged."""
    comment: str | None
    """What a person has to say of it."""
    reward_id: str | None
    """Of a judgement that may be said again: the first stands, however often it is repeated."""


def make_reward(
    row: TrajectoryRow, score: float | None, options: RewardOptions, known: Sequence[Reward], run: str
) -> Reward:
    """Write a judgement down, as one that supersedes what stood of the same rollout, step or agent.

    Args:
        row: what is judged.
        score: None takes back what stood, without another in its place.
        options: see RewardOptions.
        known: all that was judged before.
        run: for trajectories whose beginning is not stored.

    Raises: BadInputError: nobody can count it: no finite number, no such step or agent, no name.
    """
    step, agent = options.get("step"), options.get("agent")
    _check(row, score, step, agent)
    reward_id = options.get("reward_id")
    reward = Reward(
        trajectory_id=row.trajectory_id,
        reward_id=new_id() if reward_id is None else check_name(reward_id, "reward id"),
        run=row.run or run,
        at=time.time(),
        name=check_name(options.get("name", "reward"), "reward name"),
        score=None if score is None else float(score),
        scope="step" if step is not None else "agent" if agent is not None else "rollout",
        step=step,
        agent=agent,
        source=options.get("source", "human"),
        status="missing" if score is None else "ok",
        comment=options.get("comment"),
    )
    return _superseding(reward, known)


def _superseding(reward: Reward, known: Sequence[Reward]) -> Reward:
    replaced = find_current_reward(known, reward_topic(reward))
    return reward if replaced is None else msgspec.structs.replace(reward, supersedes=replaced.reward_id)


def find_current_reward(known: Sequence[Reward], topic: RewardTopic) -> Reward | None:
    """The judgement that stands; None when there is none."""
    return next((reward for reward in current_rewards(known) if reward_topic(reward) == topic), None)


def read_rewards(redis: Redis, keys: Keys, trajectory_id: str) -> list[Reward]:
    """All judgements of a trajectory that are indexed, in order of time."""
    stored = cast("list[bytes]", redis.hvals(keys.rewards(trajectory_id)))
    return sorted(map(_reward_of, stored), key=lambda reward: (reward.at, reward.reward_id))


def commit_reward(redis: Redis, keys: Keys, reward: Reward) -> Reward:
    """Give what was said first under the reward's id, in the words of now: whoever says it again writes the same.

    Neither the crash of one nor the haste of another then leaves two judgements of one id that differ. Words are not
    kept in Redis, where no redaction has seen them.
    """
    key = keys.judged(reward.trajectory_id, reward.reward_id)
    wordless = msgspec.structs.replace(reward, comment=None, error=None)
    redis.set(key, encode(wordless), nx=True, ex=_AGREED_SECONDS)
    stored = redis.get(key)
    first = _reward_of(stored) if isinstance(stored, bytes) else wordless
    return msgspec.structs.replace(first, comment=reward.comment, error=reward.error)


def _check(row: TrajectoryRow, score: float | None, step: int | None, agent: str | None) -> None:
    subject = f"reward of trajectory {row.trajectory_id!r}"
    if score is not None and not math.isfinite(score):
        raise BadInputError(f"{subject}: expected a finite number, found {score}; None takes a judgement back")
    if step is not None and agent is not None:
        raise BadInputError(f"{subject}: expected a step or an agent, found both; say it of one of them")
    if step is not None and not 0 <= step < row.num_steps:
        raise BadInputError(
            f"{subject}: expected a step below the number of its steps, which is {row.num_steps}, found {step};"
            " steps count from 0"
        )
    if agent is not None and agent not in row.agents:
        raise BadInputError(
            f"{subject}: expected an agent that made a call in it ({', '.join(row.agents) or 'none is known'}), found"
            f" {agent!r}; 'agent-layer show' names them"
        )


def _reward_of(stored: bytes) -> Reward:
    if isinstance(reward := decode(stored), Reward):
        return reward
    raise CorruptRecordError(f"reward index: expected rewards, found {type(reward).__name__}; reindex the store")
