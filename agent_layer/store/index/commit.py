"""Commit of segments to the index, in idempotent steps; each segment is marked as committed last."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice
from typing import Literal, TypeAlias, cast, get_args

import msgspec
from redis import Redis

from agent_layer.infra import Keys, batched, read_server_change
from agent_layer.schema import (
    BatchEntry,
    Cause,
    GroupEntry,
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
from agent_layer.store.segments.format import SealedSegment
from agent_layer.store.segments.summary import JudgementParts, split_rewards
from agent_layer.store.segments.tombstones import member_ids

_MAX_BATCH_SIZE = 256
"""Largest number of rows, calls and rewards that one script merges; more would block Redis for longer."""

_REPLACED_SECONDS = 86_400
"""How long the index knows the successor of a segment; no process commits a segment that it read longer ago."""


_Kind: TypeAlias = Literal["trajectories", "policies", "trained", "groups"]


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What commit.lua merges of one trajectory (or a part of it), policy version, trained batch or group."""

    kind: _Kind
    weight: int
    """Rows, calls, rewards and members in it."""
    fields: Mapping[str, object]
    """Fields as commit.lua reads them. The reader inside Redis knows no bytes: see ``as_text``."""


def commit_segments(redis: Redis, keys: Keys, segments: Sequence[SealedSegment], *, again: bool = False) -> None:
    """Commit segments whose objects are stored already.

    Repeated commits, and commits in another order, give the same index. With ``again``, bitmaps and columns that
    contradict a row are repaired, too.
    """
    while not commit_once(redis, keys, segments, read_server_change(redis, keys), again=again):
        pass
    note_replaced(redis, keys, segments)


def note_replaced(redis: Redis, keys: Keys, segments: Iterable[SealedSegment]) -> None:
    """Queue what these committed segments replace for removal."""
    for one in segments:  # so that the replaced ones go even if the process that merged them died
        for page in batched(one.footer.replaces, _MAX_BATCH_SIZE):
            sizes = cast("list[bytes | None]", redis.hmget(keys.segments, page))
            if committed := [name for name, size in zip(page, sizes, strict=True) if size is not None]:
                remember_replaced(redis, keys, committed, one.footer.name)


def commit_once(redis: Redis, keys: Keys, segments: Sequence[SealedSegment], change: bytes, *, again: bool) -> bool:
    """Merge all rows, then mark the segments as committed.

    Returns: False, and nothing is marked, where the server changed since ``change``: it may have forgotten rows.
    """
    commit, enter, mark = (script.load(redis) for script in (COMMIT, ENTER_REWARDS, MARK_COMMITTED))
    merged = [one.footer.name for one in segments if one.footer.replaces]
    for batch in _batches(segments, merged, again=again):
        bases = cast("list[list[bytes]]", commit(keys=[keys.name()], args=[batch]))
        while bases:  # again for those whose basis changed meanwhile
            bases = cast("list[list[bytes]]", enter(keys=[keys.name()], args=compute_rewards(bases)))
    names_and_sizes = [value for one in segments for value in (one.footer.name, one.size_bytes)]
    return mark(keys=[keys.name()], args=[change, *names_and_sizes]) == 1


def remember_replaced(redis: Redis, keys: Keys, names: Sequence[str], by: str) -> None:
    """Store the successor of segments (empty: all of their records were deleted), and queue them for removal."""
    for page in batched(names, _MAX_BATCH_SIZE):
        pipeline = redis.pipeline(transaction=False)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        pipeline.sadd(keys.rewrite, *page)
        for name in page:
            pipeline.set(keys.replaced(name), by, ex=_REPLACED_SECONDS)
        pipeline.execute()


def _batches(segments: Iterable[SealedSegment], merged: list[str], *, again: bool) -> Iterator[bytes]:
    """Yield arguments of commit.lua.

    Args:
        segments: what is committed.
        merged: names of those segments that replace others.
        again: the index may have lost earlier entries, so all are written again.
    """

    def encode(entries: Sequence[_Entry]) -> bytes:
        by_kind = {kind: [one.fields for one in entries if one.kind == kind] for kind in get_args(_Kind)}
        return msgspec.msgpack.encode({**by_kind, "merged": merged, "again": again})

    batch: list[_Entry] = []
    weight = 0
    for entry in (entry for one in segments for entry in _entries(one.footer)):
        if batch and weight + entry.weight > _MAX_BATCH_SIZE:
            yield encode(batch)
            batch, weight = [], 0
        batch.append(entry)
        weight += entry.weight
    if batch:
        yield encode(batch)


def _entries(footer: SegmentFooter) -> Iterator[_Entry]:
    places = {chunk.owner: f"{chunk.offset} {chunk.size_bytes}" for chunk in footer.chunks}
    for summary in footer.trajectories:
        for part in _split_summary(summary):
            judged = split_rewards(part.rewards)
            yield _Entry(
                kind="trajectories",
                weight=1 + sum(map(len, (part.calls, part.rewards, part.blobs, part.given_labels))),
                fields={
                    "summary": msgspec.structs.replace(part, rewards={}) if part.rewards else part,
                    "segment": footer.name,
                    "place": places[trajectory_owner(summary.trajectory_id)],
                    "rewards": {reward_id: as_text(record) for reward_id, record in judged.of_rollout.items()},
                    "part_rewards": [(name, replaced, as_text(record)) for name, replaced, record in judged.of_parts],
                    "topics": judged.topics,
                    "is_judged": bool(part.is_started or part.ending or judged.of_rollout),
                    "reward": _judge_alone(part, judged),
                },
            )
    for policy in footer.policies:
        yield _Entry(kind="policies", weight=1, fields=_list_fields(policy))
    named: list[tuple[_Kind, BatchEntry | GroupEntry]] = [
        *(("trained", batch) for batch in footer.batches),
        *(("groups", group) for group in footer.groups),
    ]
    for kind, one in named:
        members = member_ids(one.record)
        fields = _list_fields(one) | {"segment": footer.name, "members": members}
        yield _Entry(kind=kind, weight=1 + len(members), fields=fields)


def _judge_alone(summary: TrajectorySummary, judged: JudgementParts) -> str:
    """Compute the reward of a trajectory that is new to the index; empty for null."""
    opening = summary.opening.fields if summary.opening else {}
    ending = summary.ending.fields if summary.ending else {}
    outcome = make_outcome(ending.get("status", ""), ending.get("cause", "")) if summary.ending else None
    deciding = [*judged.of_rollout, *(name for name, superseded, _ in judged.of_parts if superseded)]
    reward = compute_reward(opening.get("declared", ""), [judged.read[name] for name in deciding], outcome)
    return "" if reward is None else repr(reward)


def _list_fields(entry: PolicyEntry | BatchEntry | GroupEntry) -> dict[str, object]:
    return {**msgspec.structs.asdict(entry), "record": as_text(entry.record)}


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


def as_text(content: bytes) -> msgspec.Raw:
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
        outcome = make_outcome(status, cause) if ended else None
        reward = compute_reward(declared, [cast("Reward", decode_known(one)) for one in basis[6:]], outcome)
        arguments += [trajectory_id, mark, "" if reward is None else repr(reward)]
    return arguments


@cache
def make_outcome(status: str, cause: str) -> Outcome:
    """Return as much of an end as decides about the reward."""
    known = cast("Cause", cause) if cause else None
    return Outcome(trajectory_id="", run="", ended_at=0.0, status=cast("RolloutStatus", status), cause=known)


def compute_reward(declared: str, rewards: Sequence[Reward], outcome: Outcome | None) -> float | None:
    """Compute the reward of a rollout from what the index holds of it.

    Args:
        declared: JSON of the task's rewards; empty: it declares none.
        rewards: judgements that may decide it.
        outcome: how it ended; None while it runs.
    """
    return rollout_reward(_read_declared(declared) if declared else {}, rewards, outcome)


@lru_cache(maxsize=1_024)
def _read_declared(declared: str) -> dict[str, RewardSpec]:
    return msgspec.json.decode(declared, type=dict[str, RewardSpec])
