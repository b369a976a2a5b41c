"""Commit of segments to the index, in idempotent steps; each segment is marked as committed last."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import cast

import msgspec
from redis import Redis

from agent_layer.infra import batched
from agent_layer.infra.redis import Keys
from agent_layer.schema import (
    Cause,
    Outcome,
    PolicyEntry,
    Reward,
    RewardSpec,
    RolloutStatus,
    SegmentFooter,
    TrajectorySummary,
    decode_known,
    rollout_reward,
    trajectory_owner,
)
from agent_layer.store.index.scripts import COMMIT, ENTER_REWARDS, MARK_COMMITTED
from agent_layer.store.segments import SealedSegment, may_change_reward, member_ids

_MAX_BATCH_SIZE = 256
"""Largest number of rows, calls and rewards that one script merges; more would block Redis for longer."""

_REPLACED_SECONDS = 86_400
"""How long the index knows the successor of a segment; no process commits a segment that it read longer ago."""


class _TrajectoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A summary, and the location of its records."""

    summary: TrajectorySummary
    """Without its rewards: the reader inside Redis knows no bytes."""
    segment: str
    place: str
    """'offset size' of the trajectory's chunk in the segment."""
    rewards: dict[str, msgspec.Raw]
    is_judged: bool


class _GroupEntry(msgspec.Struct, frozen=True, kw_only=True):
    segment: str
    run: str
    group_id: str
    closed_at: str
    members: list[str]
    record: msgspec.Raw


class _PolicyEntry(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    number: str
    record: msgspec.Raw


class _TrainedEntry(msgspec.Struct, frozen=True, kw_only=True):
    segment: str
    run: str
    step: str
    batch_id: str
    members: list[str]
    """Ids of the trajectories that it names."""
    record: msgspec.Raw


class IndexBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of commit.lua merges."""

    trajectories: list[_TrajectoryEntry]
    policies: list[_PolicyEntry]
    trained: list[_TrainedEntry]
    groups: list[_GroupEntry]
    merged: list[str]
    """Names of those segments that replace others."""
    again: bool
    """The index may have lost earlier entries, so all are written again."""


_Entry = _TrajectoryEntry | _PolicyEntry | _TrainedEntry | _GroupEntry


def commit_segments(redis: Redis, keys: Keys, segments: Sequence[SealedSegment], *, again: bool = False) -> None:
    """Commit segments whose objects are stored already.

    Repeated commits, and commits in another order, give the same index. With ``again``, bitmaps and columns that
    contradict a row are repaired, too.
    """
    commit, enter, mark = (script.load(redis) for script in (COMMIT, ENTER_REWARDS, MARK_COMMITTED))
    merged = [one.footer.name for one in segments if one.footer.replaces]
    for batch in _batches(segments, merged, again=again):
        bases = cast("list[list[bytes]]", commit(keys=[keys.name()], args=[msgspec.msgpack.encode(batch)]))
        while bases:  # again for those whose basis changed meanwhile
            bases = cast("list[list[bytes]]", enter(keys=[keys.name()], args=compute_rewards(bases)))
    if segments:
        mark(keys=[keys.name()], args=[value for one in segments for value in (one.footer.name, one.size_bytes)])
    for one in segments:
        _queue_replaced(redis, keys, one.footer)


def _queue_replaced(redis: Redis, keys: Keys, footer: SegmentFooter) -> None:
    """Queue replaced segments for removal, so that they go even if the process that merged them died."""
    for page in batched(footer.replaces, _MAX_BATCH_SIZE):
        sizes = cast("list[bytes | None]", redis.hmget(keys.segments, page))
        if committed := [name for name, size in zip(page, sizes, strict=True) if size is not None]:
            remember_replaced(redis, keys, committed, footer.name)


def remember_replaced(redis: Redis, keys: Keys, names: Sequence[str], by: str) -> None:
    """Store the successor of segments (empty: all of their records were deleted), and queue them for removal."""
    for page in batched(names, _MAX_BATCH_SIZE):
        pipeline = redis.pipeline(transaction=False)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        pipeline.sadd(keys.rewrite, *page)
        for name in page:
            pipeline.set(keys.replaced(name), by, ex=_REPLACED_SECONDS)
        pipeline.execute()


def _batches(segments: Iterable[SealedSegment], merged: list[str], *, again: bool) -> Iterator[IndexBatch]:
    entries = (entry for one in segments for entry in _entries(one.footer))
    weighed = ((entry, _weight(entry)) for entry in entries)
    batch: list[_Entry] = []
    weight = 0
    for entry, more in weighed:
        if batch and weight + more > _MAX_BATCH_SIZE:
            yield _make_batch(batch, merged, again=again)
            batch, weight = [], 0
        batch.append(entry)
        weight += more
    if batch:
        yield _make_batch(batch, merged, again=again)


def _make_batch(entries: Sequence[_Entry], merged: list[str], *, again: bool) -> IndexBatch:
    return IndexBatch(
        trajectories=[one for one in entries if isinstance(one, _TrajectoryEntry)],
        policies=[one for one in entries if isinstance(one, _PolicyEntry)],
        trained=[one for one in entries if isinstance(one, _TrainedEntry)],
        groups=[one for one in entries if isinstance(one, _GroupEntry)],
        merged=merged,
        again=again,
    )


def _weight(entry: _Entry) -> int:
    match entry:
        case _TrajectoryEntry():
            return 1 + sum(
                map(len, (entry.summary.calls, entry.rewards, entry.summary.blobs, entry.summary.given_labels))
            )
        case _PolicyEntry():
            return 1
        case _:
            return 1 + len(entry.members)


def _entries(footer: SegmentFooter) -> Iterator[_Entry]:
    places = {chunk.owner: f"{chunk.offset} {chunk.size_bytes}" for chunk in footer.chunks}
    for summary in footer.trajectories:
        for part in _split_summary(summary):
            yield _TrajectoryEntry(
                summary=msgspec.structs.replace(part, rewards={}) if part.rewards else part,
                segment=footer.name,
                place=places[trajectory_owner(summary.trajectory_id)],
                rewards={reward_id: _as_text(record) for reward_id, record in part.rewards.items()},
                is_judged=may_change_reward(part),
            )
    for policy in footer.policies:
        yield _policy_filing(policy)
    for batch in footer.batches:
        yield _TrainedEntry(
            segment=footer.name,
            run=batch.run,
            step=batch.step,
            batch_id=batch.batch_id,
            members=member_ids(batch.record),
            record=_as_text(batch.record),
        )
    for group in footer.groups:
        yield _GroupEntry(
            segment=footer.name,
            run=group.run,
            group_id=group.group_id,
            closed_at=group.closed_at,
            members=member_ids(group.record),
            record=_as_text(group.record),
        )


def _policy_filing(policy: PolicyEntry) -> _PolicyEntry:
    return _PolicyEntry(run=policy.run, number=policy.number, record=_as_text(policy.record))


def _split_summary(summary: TrajectorySummary) -> Iterator[TrajectorySummary]:
    """A summary as several, none with more calls, rewards or blobs than one script merges."""
    third = _MAX_BATCH_SIZE // 3
    if max(len(summary.calls), len(summary.rewards), len(summary.blobs)) <= third:
        yield summary
        return
    calls, rewards, blobs = iter(summary.calls.items()), iter(summary.rewards.items()), iter(summary.blobs)

    def make_part(base: TrajectorySummary) -> TrajectorySummary:
        part = {"calls": dict(islice(calls, third)), "rewards": dict(islice(rewards, third))}
        return msgspec.structs.replace(base, **part, blobs=list(islice(blobs, third)))

    yield make_part(summary)
    nothing = TrajectorySummary(trajectory_id=summary.trajectory_id)
    while (more := make_part(nothing)) != nothing:
        yield more


def _as_text(content: bytes) -> msgspec.Raw:
    """A record's stored form under the header of a msgpack text, which the reader inside Redis does know."""
    return msgspec.Raw(b"\xdb" + len(content).to_bytes(4, "big") + content)


def compute_rewards(bases: Iterable[Sequence[bytes]]) -> list[str]:
    """Compute rewards by the one rule in Python.

    Args: bases: results of commit.lua and rewards.lua.
    Returns: arguments of rewards.lua: trajectory id, mark, reward (empty for null); and so on.
    """
    arguments: list[str] = []
    for basis in bases:
        trajectory_id, mark, declared, ended, status, cause = (value.decode() for value in basis[:6])
        outcome = Outcome(
            trajectory_id="",
            run="",
            ended_at=0.0,
            status=cast("RolloutStatus", status),
            cause=cast("Cause", cause) if cause else None,
        )
        reward = rollout_reward(
            msgspec.json.decode(declared, type=dict[str, RewardSpec]) if declared else {},
            [cast("Reward", decode_known(reward)) for reward in basis[6:]],
            outcome if ended else None,
        )
        arguments += [trajectory_id, mark, "" if reward is None else repr(reward)]
    return arguments
