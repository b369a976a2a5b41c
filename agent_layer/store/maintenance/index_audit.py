"""Audit of the search index: rows against blocks and judgements, entries against segments, bits without trajectory."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import eq
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

import msgspec
from redis import Redis

from agent_layer.infra import Keys, LuaScript, batched
from agent_layer.schema import Accepted, Chunk, SegmentFooter, TrajectorySummary, owner_text, trajectory_owner
from agent_layer.store.index.commit import compute_rewards
from agent_layer.store.index.index import Index
from agent_layer.store.index.rows import read_given_labels
from agent_layer.store.index.scripts import INDEX_CONSTANTS, INDEX_PRELUDE
from agent_layer.store.segments.fields import COLUMNS
from agent_layer.store.segments.format import Segment
from agent_layer.store.segments.summary import split_rewards

_LUA = Path(__file__).parent / "lua"

AUDIT_ROWS = LuaScript(
    file=_LUA / "audit.lua",
    preludes=INDEX_PRELUDE,
    constants=INDEX_CONSTANTS,
    commands="getbit getrange hget hlen hmget sismember",
    reads="t:* b:* v:* values:* zones runs",
)
COUNT_ORPHAN_BITS = LuaScript(
    file=_LUA / "orphans.lua",
    preludes=INDEX_PRELUDE,
    constants=INDEX_CONSTANTS,
    commands="bitpos del getrange hdel hgetall hmget setbit srem",
    reads="t:*",
    writes="b:* v:* values:*",
)

_AT_ONCE = 64
"""Most trajectories for one script, so that Redis stays responsive."""
_BASIS = ("declared", "ended", "status", "cause", "reward")
_Stored: TypeAlias = "list[bytes | None]"
_FIELDS = (
    *("opened", "ended", "status", "accepted", "agents", "tools", "findings", "policy_min", "policy_max"),
    *("given_labels", "engines"),
)
_PARTS = 16
"""Parts of a block, each examined by separate scripts."""
_LISTED = re.compile(r"(?P<rollout>(?P<group>.*)\.[0-9]+)-(?P<attempt>[0-9]+)", re.DOTALL)
"""Name of an attempt that a queue may have handed out."""
_LISTED_SECONDS = 29 * 86_400
"""Lists of accepted attempts expire a day later, or not at all."""
_NAMES_AT_ONCE = 1_024
"""Most bitmaps for one script, so that Redis stays responsive."""
_SCAN_COUNT = 1_000


def find_inconsistent_rows(index: Index, trajectory_ids: Iterable[str]) -> Iterator[str]:
    """Yield trajectories whose block differs from their row, or whose reward does not follow from the judgements."""
    for page in batched(trajectory_ids, _AT_ONCE):
        yield from dict.fromkeys([*_contradictions(index, page), *_misjudged(index, page)])


def _contradictions(index: Index, trajectory_ids: Sequence[str]) -> list[str]:
    """Trajectories that no search finds, or the wrong ones."""
    found = AUDIT_ROWS.load(index.redis)(keys=[index.keys.name()], args=list(trajectory_ids))
    return [id_.decode() for id_ in cast("list[bytes]", found)]


def _misjudged(index: Index, trajectory_ids: Sequence[str]) -> Iterator[str]:
    pipeline = index.pipeline()
    for trajectory_id in trajectory_ids:
        pipeline.hmget(index.keys.trajectory(trajectory_id), _BASIS)
        pipeline.hvals(index.keys.rewards(trajectory_id))
    found = cast("list[list[bytes | None]]", pipeline.execute())
    for trajectory_id, (*summary, stored), judged in zip(trajectory_ids, found[::2], found[1::2], strict=True):
        basis = [trajectory_id.encode(), b"", *(value or b"" for value in summary), *cast("list[bytes]", judged)]
        *_, reward = compute_rewards([basis])
        if reward.encode() != (stored or b""):
            yield trajectory_id


class _Probe(NamedTuple):
    """A command for Redis, and the check that its answer matches a segment."""

    subject: str
    command: tuple[str, ...]
    holds: Callable[[object], bool]


def find_missing_entries(index: Index, segment: Segment) -> list[str]:
    """Return the owners for whom the index lacks content of the segment.

    For deleted owners it needs to know only which bytes are to go.
    """
    chunks = segment.footer.chunks
    dead = {
        chunk.owner
        for chunk, is_dead in zip(chunks, index.are_deleted([one.owner for one in chunks]), strict=True)
        if is_dead
    }
    probes = [*_probes(index.keys, segment, dead), *_probe_accepted(index, segment, dead)]
    pipeline = index.pipeline()
    for probe in probes:
        pipeline.execute_command(*probe.command)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    found = cast("list[object]", pipeline.execute())
    return list({probe.subject: None for probe, one in zip(probes, found, strict=True) if not probe.holds(one)})


def _probes(keys: Keys, segment: Segment, dead: set[str]) -> Iterator[_Probe]:
    footer = segment.footer
    size = str(segment.size_bytes).encode()
    yield _Probe("the segment itself", ("HGET", keys.segments, footer.name), partial(eq, size))
    if dead:
        yield _Probe("what was deleted", ("SISMEMBER", keys.rewrite, footer.name), bool)
    places = {chunk.owner: chunk for chunk in footer.chunks}
    for summary in footer.trajectories:
        if (owner := trajectory_owner(summary.trajectory_id)) not in dead:
            yield from _make_probes(keys, footer.name, summary, places[owner])
    yield from _probes_of_others(keys, footer, dead)


def _make_probes(keys: Keys, segment: str, summary: TrajectorySummary, chunk: Chunk) -> Iterator[_Probe]:
    owner, place = summary.trajectory_id, f"{chunk.offset} {chunk.size_bytes}".encode()
    yield _Probe(owner, ("HGET", keys.chunks(owner), segment), partial(eq, place))
    row = ("HMGET", keys.trajectory(owner), *_FIELDS)
    yield _Probe(owner, row, partial(_row_holds, summary))
    if summary.calls:
        calls = ("HMGET", keys.calls(owner), *summary.calls)
        yield _Probe(owner, calls, partial(_calls_hold, summary))
    if summary.rewards:
        found: list[object] = []  # a reward is in one of two places, or in both
        for hash_key in (keys.rewards(owner), keys.part_rewards(owner)):
            yield _Probe(owner, ("HMGET", hash_key, *summary.rewards), partial(_are_known, found))
        if topics := split_rewards(summary.rewards).topics:
            yield _Probe(owner, ("ZMSCORE", keys.reward_topics(owner), *topics), partial(eq, [0.0] * len(topics)))
    if summary.blobs:
        known = ("HMGET", keys.trajectory_blobs(owner), *summary.blobs)
        yield _Probe(owner, known, partial(eq, [b"1"] * len(summary.blobs)))
    for name in summary.blobs:  # or it would be removed as unneeded
        yield _Probe(owner, ("SISMEMBER", keys.blob(name), owner), bool)


def _row_holds(summary: TrajectorySummary, row: object) -> bool:
    """Whether a row holds at least the content of one segment; other segments may add to it."""
    opened, ended, status, accepted, agents, tools, findings, policy_min, policy_max, labels, engines = cast(
        "_Stored", row
    )
    return (
        (summary.opening is None or _stands(opened, summary.opening.rank))
        and (summary.ending is None or _stands(ended, summary.ending.rank))
        and not (summary.is_started and status is None)
        and not (summary.is_accepted and accepted is None)
        and set(summary.agents) <= _names(agents)
        and set(summary.tools) <= _names(tools)
        and set(summary.findings) <= _names(findings)
        and set(summary.engines) <= _names(engines)
        and (summary.policy_min is None or (policy_min is not None and int(policy_min) <= summary.policy_min))
        and (summary.policy_max is None or (policy_max is not None and int(policy_max) >= summary.policy_max))
        and _labels_hold(summary, labels)
    )


def _labels_hold(summary: TrajectorySummary, stored: bytes | None) -> bool:
    known = read_given_labels(stored)
    return all(
        name in known and (known[name].rank, known[name].value or "") >= (rank, value or "")
        for name, (rank, value) in summary.given_labels.items()
    )


def _stands(stored: bytes | None, rank: str) -> bool:
    return stored is not None and stored <= rank.encode()


def _names(stored: bytes | None) -> set[str]:
    return set(msgspec.json.decode(stored, type=list[str])) if stored else set()


def _calls_hold(summary: TrajectorySummary, stored: object) -> bool:
    for call, (bits, num_choices) in zip(cast("_Stored", stored), summary.calls.values(), strict=True):
        known_bits, known_choices = map(int, (call or b"0 -1").split())
        if bits & ~known_bits or known_choices < num_choices:
            return False
    return True


def _probes_of_others(keys: Keys, footer: SegmentFooter, dead: set[str]) -> Iterator[_Probe]:
    for group in footer.groups:
        owner = owner_text("group", group.group_id)
        if owner not in dead:
            yield _Probe(owner, ("EXISTS", keys.group(group.group_id)), bool)
            yield _Probe(owner, ("ZSCORE", keys.closed_groups(group.run), group.group_id), _is_known)
            yield _Probe(owner, ("HGET", keys.group_segments, group.group_id), partial(_is_listed, footer.name))
            yield _Probe(owner, ("SISMEMBER", keys.runs, group.run), bool)
    for policy in footer.policies:
        owner = owner_text("policy", f"{policy.run}:{policy.number}")
        yield _Probe(owner, ("HEXISTS", keys.policies(policy.run), policy.number), bool)
        yield _Probe(owner, ("SISMEMBER", keys.runs, policy.run), bool)
    for batch in footer.batches:
        step = f"{batch.run}:{batch.step}"
        owner = owner_text("batch", step)
        yield _Probe(owner, ("HEXISTS", keys.batches(batch.run), batch.batch_id), bool)
        yield _Probe(owner, ("HGET", keys.batch_segments, step), partial(_is_listed, footer.name))


def _probe_accepted(index: Index, segment: Segment, dead: set[str]) -> Iterator[_Probe]:
    """Yield the probes of the lists of accepted attempts, as accepted.lua keeps them: until the group has a record."""
    accepted = [one for records in segment.records.values() for one in records if isinstance(one, Accepted)]
    found = [(one, match) for one in accepted if (match := _LISTED.fullmatch(one.trajectory_id))]
    if not found:
        return
    least_time = index.redis.time()[0] - _LISTED_SECONDS  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    are_deleted = index.are_deleted([owner_text("group", match["group"]) for _, match in found])
    for (one, match), is_deleted in zip(found, are_deleted, strict=True):
        owner, group = trajectory_owner(one.trajectory_id), index.keys.group(match["group"])
        if owner in dead or is_deleted or one.accepted_at < least_time:
            continue
        listed: list[object] = []  # read before the group's record, whose commit removes the list
        holds = partial(_is_accepted_known, listed, int(match["attempt"]))
        yield _Probe(owner, ("HGET", f"{group}/accepted", match["rollout"]), holds)
        yield _Probe(owner, ("EXISTS", group), holds)


def _is_accepted_known(listed: list[object], attempt: int, found: object) -> bool:
    """Whether the list names this attempt or an earlier one, or the group has a record; True for the first answer."""
    listed.append(found)
    first, *others = listed
    return not others or bool(others[0]) or (first is not None and int(cast("bytes", first)) <= attempt)


def _is_listed(segment: str, found: object) -> bool:
    return found is not None and segment in cast("bytes", found).decode().split()


def _is_known(found: object) -> bool:
    return found is not None


def _are_known(earlier: list[object], found: object) -> bool:
    """Whether each value is in this answer or in the earlier one; True for the first of two answers."""
    earlier.append(found)
    first, *others = (cast("_Stored", one) for one in earlier)
    return not others or None not in [one or other for one, other in zip(first, others[0], strict=True)]


def count_orphan_bits(redis: Redis, keys: Keys, *, clear: bool = False) -> dict[int, int]:
    """Count the bits that belong to no trajectory, for each block that has some."""
    script, found = COUNT_ORPHAN_BITS.load(redis), defaultdict[int, int](int)
    for block, names in sorted(_bitmaps(redis, keys).items()):
        for page in batched(names, _NAMES_AT_ONCE):
            for part in range(_PARTS):
                arguments = [block, part, "1" if clear else "", *page]
                found[block] += cast("int", script(keys=[keys.name()], args=arguments))
    return {block: num_orphans for block, num_orphans in found.items() if num_orphans}


def _bitmaps(redis: Redis, keys: Keys) -> dict[int, list[str]]:
    """Return the names of the bitmaps of each block."""
    begin, bitmaps = keys.name("b", ""), defaultdict[int, list[str]](list)
    found = redis.scan_iter(match=f"{begin}*", count=_SCAN_COUNT)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped in redis-py
    for key in cast("Iterator[bytes]", found):
        block, _, name = key.decode().removeprefix(begin).partition(":")
        if name not in COLUMNS and not name.startswith("ids:"):
            bitmaps[int(block)].append(name)
    return bitmaps
