"""Rewards given after an attempt: how they are recorded, checked and superseded."""

import time
from collections.abc import Sequence
from typing import SupportsFloat, TypedDict, cast

import msgspec
from redis import Redis

from agent_layer.errors import BadInputError, CorruptRecordError
from agent_layer.infra import Keys, batched
from agent_layer.schema import (
    Reward,
    RewardSource,
    RewardTopic,
    check_name,
    current_rewards,
    decode,
    encode,
    new_id,
    read_score,
    reward_topic,
)
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.segments.summary import topic_prefix

_AGREED_SECONDS = 86_400
"""How long a reward id stays taken: longer than logs wait for an unreachable store."""


class RewardOptions(TypedDict, total=False):
    """Fields of a reward beside its score."""

    name: str
    """Which of the task's rewards; ``reward`` when left out."""
    source: RewardSource
    """Source of the reward; ``human`` when left out."""
    step: int | None
    """Index of the step that the reward is for; without step and agent, it is for the rollout."""
    agent: str | None
    """Name of the agent that the reward is for."""
    comment: str | None
    """A person's comment."""
    reward_id: str | None
    """Makes the call idempotent: the first reward with this id counts, all repetitions return it."""


def make_reward(row: TrajectoryRow, score: SupportsFloat | None, options: RewardOptions, run: str) -> Reward:
    """Make a reward of a rollout, a step or an agent; it supersedes none.

    Args:
        row: of the trajectory.
        score: None takes back the current reward without a new one.
        options: see RewardOptions.
        run: for trajectories whose beginning is not stored.

    Raises: BadInputError: the score is not finite, or there is no such step, agent or name.
    """
    step, agent = options.get("step"), options.get("agent")
    subject = f"reward of trajectory {row.trajectory_id!r}"
    score = None if score is None else read_score(score, subject)
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
    reward_id = options.get("reward_id")
    return Reward(
        trajectory_id=row.trajectory_id,
        reward_id=new_id() if reward_id is None else check_name(reward_id, "reward id"),
        run=row.run or run,
        at=time.time(),
        name=check_name(options.get("name", "reward"), "reward name"),
        score=score,
        scope="step" if step is not None else "agent" if agent is not None else "rollout",
        step=step,
        agent=agent,
        source=options.get("source", "human"),
        status="missing" if score is None else "ok",
        comment=options.get("comment"),
    )


def supersede_current(reward: Reward, known: Sequence[Reward]) -> Reward:
    """Return the reward, superseding the current one of its topic."""
    replaced = find_current_reward(known, reward_topic(reward))
    return reward if replaced is None else msgspec.structs.replace(reward, supersedes=replaced.reward_id)


def find_current_reward(known: Sequence[Reward], topic: RewardTopic) -> Reward | None:
    """Return the current reward of a topic; None when there is none."""
    return next((reward for reward in current_rewards(known) if reward_topic(reward) == topic), None)


def read_rewards(redis: Redis, keys: Keys, trajectory_id: str) -> list[Reward]:
    """Return all indexed rewards of a trajectory, in order of time."""
    return read_reward_lists(redis, keys, [trajectory_id])[0]


def read_reward_lists(redis: Redis, keys: Keys, trajectory_ids: Sequence[str]) -> list[list[Reward]]:
    """Return [num_trajectories] all indexed rewards of each, in order of time, from one read of Redis."""
    pipeline = redis.pipeline(transaction=False)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    for trajectory_id in trajectory_ids:
        pipeline.hgetall(keys.rewards(trajectory_id))
        pipeline.hgetall(keys.part_rewards(trajectory_id))
    found = cast("list[dict[bytes, bytes]]", pipeline.execute())
    stored = ((parts | whole).values() for whole, parts in batched(found, 2))  # once all of them were kept together
    return [sorted(map(_decode_reward, one), key=lambda reward: (reward.at, reward.reward_id)) for one in stored]


def read_topic_rewards(redis: Redis, keys: Keys, trajectory_id: str, topic: RewardTopic, *ids: str) -> list[Reward]:
    """Return the indexed rewards of a topic, of the rollout and with these ids; no others of steps and agents are read.

    They hold all that ``find_current_reward`` needs for this topic. An index that was written before topics were, or
    lost some, answers with all rewards.
    """
    prefix, parts_key = topic_prefix(topic), keys.part_rewards(trajectory_id)
    pipeline = redis.pipeline(transaction=False)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    pipeline.hgetall(keys.rewards(trajectory_id))
    pipeline.zrangebylex(keys.reward_topics(trajectory_id), f"[{prefix}", f"({prefix[:-1]}\1")  # pyright: ignore[reportUnknownMemberType]
    pipeline.zcard(keys.reward_topics(trajectory_id))
    pipeline.hlen(parts_key)
    whole, members, num_topics, num_parts = cast("tuple[dict[bytes, bytes], list[bytes], int, int]", pipeline.execute())
    if num_topics < num_parts:
        return read_rewards(redis, keys, trajectory_id)
    names = [*(one.encode() for one in ids), *(one.removeprefix(prefix.encode()) for one in members)]
    parts = cast("list[bytes | None]", redis.hmget(parts_key, names)) if names else []
    found = whole | {name: stored for name, stored in zip(names, parts, strict=True) if stored is not None}
    return [*map(_decode_reward, found.values())]


def commit_reward(redis: Redis, keys: Keys, reward: Reward) -> Reward:
    """Return the first reward with this id, with the comment and error of this one.

    After a crash, or with two concurrent callers, all write the same reward for one id. Redis keeps no comment and no
    error, because no redaction has seen them.
    """
    key = keys.judged(reward.trajectory_id, reward.reward_id)
    wordless = msgspec.structs.replace(reward, comment=None, error=None)
    redis.set(key, encode(wordless), nx=True, ex=_AGREED_SECONDS)
    stored = redis.get(key)
    first = _decode_reward(stored) if isinstance(stored, bytes) else wordless
    return msgspec.structs.replace(first, comment=reward.comment, error=reward.error)


def _decode_reward(stored: bytes) -> Reward:
    if isinstance(reward := decode(stored), Reward):
        return reward
    raise CorruptRecordError(f"reward index: expected rewards, found {type(reward).__name__}; reindex the store")
