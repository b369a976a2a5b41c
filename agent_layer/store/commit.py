"""This file holds how a segment enters the index: in idempotent steps, the segment's own mark last."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
from redis import Redis

from agent_layer.schema.codec import LogRecord, decode
from agent_layer.schema.reward import Reward, rollout_reward
from agent_layer.schema.rollout import AttemptStarted, Cause, Outcome, RolloutStatus
from agent_layer.schema.segment import SegmentFooter
from agent_layer.schema.task import RewardSpec
from agent_layer.store.keys import Keys
from agent_layer.store.summary import IndexBatch, summarise

__all__ = ["commit_segment"]

_BATCH_RECORDS = 256
"""Records that one script call merges at most, so that nobody waits long for Redis."""

_BEARS_ON_REWARD = (AttemptStarted, Reward, Outcome)

_LUA = Path(__file__).parent / "lua"
_COMMIT = (_LUA / "commit.lua").read_text()
_ENTER_REWARDS = (_LUA / "reward.lua").read_text()


def commit_segment(
    redis: Redis,
    keys: Keys,
    segment_key: str,
    size: int,
    footer: SegmentFooter,
    records: Mapping[str, Sequence[LogRecord]],
) -> None:
    """Enter a segment, whose object is stored already, with all records by owner.

    Doing it again, or in another order with others, changes nothing.
    """
    commit = redis.register_script(_COMMIT)
    places = {chunk.owner: f"{chunk.offset} {chunk.size_bytes}" for chunk in footer.chunks}
    for batch in _batches(segment_key, places, records):
        commit(keys=[keys.name()], args=[msgspec.msgpack.encode(batch)])
    judged = [owner for owner, ours in records.items() if any(isinstance(one, _BEARS_ON_REWARD) for one in ours)]
    for begin in range(0, len(judged), _BATCH_RECORDS):
        _enter_rewards(redis, keys, judged[begin : begin + _BATCH_RECORDS])
    redis.hset(keys.segments, segment_key, str(size))


def _batches(
    segment_key: str, places: Mapping[str, str], records: Mapping[str, Sequence[LogRecord]]
) -> Iterator[IndexBatch]:
    batch, num_records = IndexBatch(trajectories=[], policies=[], batches=[], groups=[]), 0
    for owner, ours in records.items():
        for begin in range(0, len(ours), _BATCH_RECORDS):
            part = ours[begin : begin + _BATCH_RECORDS]
            if num_records + len(part) > _BATCH_RECORDS:
                yield batch
                batch, num_records = IndexBatch(trajectories=[], policies=[], batches=[], groups=[]), 0
            summary = summarise(owner, part, segment_key, places[owner])
            batch.trajectories.extend(summary.trajectories)
            batch.policies.extend(summary.policies)
            batch.batches.extend(summary.batches)
            batch.groups.extend(summary.groups)
            num_records += len(part)
    if num_records:
        yield batch


class _Basis(msgspec.Struct, frozen=True, kw_only=True):
    """What the index holds of a trajectory that its reward follows from."""

    mark: str
    """Changes whenever any of the rest does."""
    declared: dict[str, RewardSpec]
    rewards: list[Reward]
    outcome: Outcome | None


def _enter_rewards(redis: Redis, keys: Keys, trajectory_ids: Sequence[str]) -> None:
    """Work rewards out by the one rule in Python, and again where what they follow from changed meanwhile."""
    enter = redis.register_script(_ENTER_REWARDS)
    left = list(trajectory_ids)
    while left:
        arguments: list[str] = []
        for trajectory_id, basis in zip(left, _read_bases(redis, keys, left), strict=True):
            reward = rollout_reward(basis.declared, basis.rewards, basis.outcome)
            arguments += [trajectory_id, basis.mark, "" if reward is None else repr(reward)]
        changed = cast("list[bytes]", enter(keys=[keys.name()], args=arguments))
        left = [trajectory_id.decode() for trajectory_id in changed]


def _read_bases(redis: Redis, keys: Keys, trajectory_ids: Sequence[str]) -> list[_Basis]:
    pipeline = redis.pipeline(transaction=False)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    for trajectory_id in trajectory_ids:
        pipeline.hmget(keys.trajectory(trajectory_id), ["opened", "ended", "declared", "status", "cause"])
        pipeline.hvals(keys.rewards(trajectory_id))
    found = cast("list[list[bytes | None]]", pipeline.execute())
    return [_basis_of(row, rewards) for row, rewards in zip(found[::2], found[1::2], strict=True)]


def _basis_of(row: Sequence[bytes | None], rewards: Sequence[bytes | None]) -> _Basis:
    opened, ended, declared, status, cause = (None if value is None else value.decode() for value in row)
    outcome = Outcome(
        trajectory_id="",
        run="",
        ended_at=0.0,
        status=cast("RolloutStatus", status),
        cause=cast("Cause | None", cause),
    )
    return _Basis(
        mark=f"{opened or ''}|{ended or ''}|{len(rewards)}",
        declared=msgspec.json.decode(declared, type=dict[str, RewardSpec]) if declared else {},
        rewards=[cast("Reward", decode(reward)) for reward in rewards if reward is not None],
        outcome=outcome if ended else None,
    )
