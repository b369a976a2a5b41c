"""Bulk entry of segments into an index that lost them: the state that commit.lua would arrive at, merged in Python.

A trajectory of which Redis has nothing is entered whole, many in one script, their bits of a bitmap as one string. Of
any other the parts go through ``commit_segments``, as those of live commits do: nothing is lost or doubled, whoever
comes first. The script decides, so a commit in the same moment is no exception.
"""

import math
import struct
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, compress
from typing import Final, NamedTuple, TypeAlias, cast

import msgspec
from redis import Redis

from agent_layer.infra import Keys, batched
from agent_layer.schema import Block, TrajectorySummary, trajectory_owner
from agent_layer.store.index.commit import as_text, commit_segments, compute_reward, make_outcome
from agent_layer.store.index.filters import find_bucket, name_bitmap, name_label
from agent_layer.store.index.plan import bucket_name
from agent_layer.store.index.scripts import RESTORE
from agent_layer.store.segments.fields import COLUMNS, FIELDS
from agent_layer.store.segments.format import SealedSegment
from agent_layer.store.segments.summary import may_change_reward
from agent_layer.store.segments.tombstones import owner_hash

_MAX_TOGETHER: Final = 128
"""Trajectories for one script, so that Redis stays responsive."""
_MAX_WEIGHT: Final = 2_048
"""Calls, rewards and blobs of these."""
_MAX_ENTRIES: Final = 512
"""A trajectory with more calls, rewards or blobs is committed in parts."""
_MAX_KEYS: Final = 512
_MAX_WAITING: Final = 3
"""Batches on their way to Redis while the next one is merged."""
_BITS: Final = [1 << _MAX_TOGETHER - 1 - place for place in range(_MAX_TOGETHER)]
"""Redis counts from the highest bit."""

_Name: TypeAlias = tuple[str, str, str]
"""A bitmap, its field, and the value of it that the bitmap stands for."""
_NAME_OF_ALL: Final[list[_Name]] = [("all", "all", "")]
_SINGLE: Final = [(field.name, field.bitmap) for field in FIELDS if field.bitmap and field.kind == "text"]
_LISTS: Final = [(field.name, field.bitmap) for field in FIELDS if field.bitmap and field.kind == "json"]
_LABELS: Final = msgspec.json.Decoder(dict[str, str])


class _Part(NamedTuple):
    """What one segment has of a trajectory."""

    segment: str
    place: str
    summary: TrajectorySummary


class _Merged(NamedTuple):
    """A whole trajectory, as the index has it."""

    trajectory_id: str
    fields: dict[str, str]
    names: list[_Name]
    """All that it is filed under."""
    numbers: list[float]
    """Of COLUMNS; NaN is not known."""
    chunks: dict[str, str]
    calls: dict[str, str]
    rewards: dict[str, bytes]
    blobs: list[str]


def restore_segments(redis: Redis, keys: Keys, segments: Sequence[SealedSegment]) -> None:
    """Commit segments whose entries the index may have lost; the index is as after ``commit_segments(again=True)``."""
    parts = _collect_parts(segments)
    rest = _find_known(redis, keys, list(parts))
    entered = set[str]()
    with ThreadPoolExecutor(1) as threads:
        sender = _Sender(redis, keys, threads)
        for batch in _batches(_merge(name, found) for name, found in parts.items() if name not in rest):
            sender.send(batch)
            entered.update(one.trajectory_id for one in batch)
        entered -= sender.finish()
    commit_segments(redis, keys, [_leave_out(entered, one) for one in segments], again=True)


def _collect_parts(segments: Iterable[SealedSegment]) -> dict[str, list[_Part]]:
    parts: defaultdict[str, list[_Part]] = defaultdict(list)
    for one in segments:
        places = {chunk.owner: f"{chunk.offset} {chunk.size_bytes}" for chunk in one.footer.chunks}
        for summary in one.footer.trajectories:
            place = places[trajectory_owner(summary.trajectory_id)]
            parts[summary.trajectory_id].append(_Part(one.footer.name, place, summary))
    return parts


def _leave_out(entered: set[str], segment: SealedSegment) -> SealedSegment:
    left = [one for one in segment.footer.trajectories if one.trajectory_id not in entered]
    return segment._replace(footer=msgspec.structs.replace(segment.footer, trajectories=left))


def _find_known(redis: Redis, keys: Keys, trajectory_ids: Sequence[str]) -> set[str]:
    """Return those that have a row already, or were deleted; the script looks again."""
    known, has_dead = set[str](), bool(redis.hlen(keys.dead))
    for page in batched(trajectory_ids, _MAX_KEYS):
        if redis.exists(*map(keys.trajectory, page)):
            pipeline = redis.pipeline(transaction=False)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
            for trajectory_id in page:
                pipeline.exists(keys.trajectory(trajectory_id))
            known.update(compress(page, cast("list[int]", pipeline.execute())))
        if has_dead:
            when = redis.hmget(keys.dead, [owner_hash(trajectory_owner(one)) for one in page])
            known.update(one for one, at in zip(page, when, strict=True) if at is not None)
    return known


class _Sender:
    """Sends batches to Redis while the caller merges the next ones."""

    def __init__(self, redis: Redis, keys: Keys, threads: ThreadPoolExecutor) -> None:
        self._script, self._keys, self._threads = RESTORE.load(redis), keys, threads
        self._waiting: deque[tuple[Sequence[_Merged], Future[object]]] = deque()
        self._refused = set[str]()

    def send(self, batch: Sequence[_Merged]) -> None:
        """Send trajectories; wait only if too many are on their way."""
        packed = msgspec.msgpack.encode(_describe(batch))
        answer = self._threads.submit(self._script, keys=[self._keys.name()], args=[packed])
        self._waiting.append((batch, answer))
        if len(self._waiting) > _MAX_WAITING:
            self._settle()

    def finish(self) -> set[str]:
        """Wait for all; return the trajectories that the index refused."""
        while self._waiting:
            self._settle()
        return self._refused

    def _settle(self) -> None:
        batch, answer = self._waiting.popleft()
        refused = {one.decode() for one in cast("list[bytes]", answer.result())}
        if refused:
            self._refused |= refused
            if left := [one for one in batch if one.trajectory_id not in refused]:
                self.send(left)


def _batches(found: Iterable[_Merged | None]) -> Iterator[list[_Merged]]:
    batch, weight = list[_Merged](), 0
    for one in found:
        if one is None:
            continue
        more = 1 + len(one.calls) + len(one.rewards) + len(one.blobs)
        if batch and (len(batch) == _MAX_TOGETHER or weight + more > _MAX_WEIGHT):
            yield batch
            batch, weight = [], 0
        batch.append(one)
        weight += more
    if batch:
        yield batch


def _describe(batch: Sequence[_Merged]) -> dict[str, object]:
    """What restore.lua reads; it knows no bytes, see ``as_text``."""
    places: defaultdict[_Name, int] = defaultdict(int)
    for one, bit in zip(batch, _BITS, strict=False):
        for name in one.names:
            places[name] |= bit
    return {
        "segments": list({segment for one in batch for segment in one.chunks}),
        "runs": list({one.fields["run"] for one in batch if "run" in one.fields}),
        "trajectories": [_describe_row(one) for one in batch],
        "marks": [_describe_mark(name, bits) for name, bits in places.items()],
        "columns": [_describe_column(numbers) for numbers in zip(*(one.numbers for one in batch), strict=True)],
    }


def _describe_row(one: _Merged) -> list[object]:
    fields = one.fields
    is_event = "status" in fields or "accepted" in fields
    rewards = [text for reward_id, record in one.rewards.items() for text in (reward_id, as_text(record))]
    return [
        one.trajectory_id,
        fields.get("run", ""),
        fields.get("status", "") if is_event else False,
        [*chain.from_iterable(fields.items())],
        [*chain.from_iterable(one.chunks.items())],
        [*chain.from_iterable(one.calls.items())],
        rewards,
        one.blobs,
    ]


def _describe_mark(name: "_Name", bits: int) -> list[object]:
    packed = bits.to_bytes(_MAX_TOGETHER // 8)
    tail = packed.lstrip(b"\0")
    return [*name, len(packed) - len(tail), as_text(tail.rstrip(b"\0"))]


def _describe_column(numbers: Sequence[float]) -> list[object]:
    known = [one for one in numbers if one == one]  # noqa: PLR0124 - NaN is not known
    packed = struct.pack(f"<{len(numbers)}d", *numbers)
    return [as_text(packed), min(known, default=math.inf), max(known, default=-math.inf)]


def _merge(trajectory_id: str, parts: Sequence[_Part]) -> _Merged | None:
    """Merge the parts of a trajectory as commit.lua does; None: too large for one script, or of no known start."""
    summaries = [part.summary for part in parts]
    fields, calls = _merge_blocks(summaries), _merge_calls(summaries)
    rewards = {name: record for one in reversed(summaries) for name, record in one.rewards.items()}  # the first stands
    blobs = list(dict.fromkeys(name for one in summaries for name in one.blobs))
    if "started_at" not in fields or max(map(len, (calls, rewards, blobs))) > _MAX_ENTRIES:
        return None
    fields |= _merge_numbers(summaries, calls)
    names = [*_NAME_OF_ALL, *_merge_names(summaries, fields), *_merge_labels(summaries, fields)]
    names += [(name_bitmap(bitmap, fields[name]), bitmap, fields[name]) for name, bitmap in _SINGLE if name in fields]
    if any(map(may_change_reward, summaries)):
        names += _enter_reward(fields, rewards)
    return _Merged(
        trajectory_id=trajectory_id,
        fields=fields,
        names=names,
        numbers=[float(fields.get(column, math.nan)) for column in COLUMNS],
        chunks={part.segment: part.place for part in parts},
        calls={call: f"{bits} {num_choices}" for call, (bits, num_choices) in calls.items()},
        rewards=rewards,
        blobs=blobs,
    )


def _merge_blocks(summaries: Sequence[TrajectorySummary]) -> dict[str, str]:
    """Return the fields of the best opening and ending, and what else is known of the state."""
    fields = dict[str, str]()
    for field, blocks in (
        ("opened", [one.opening for one in summaries if one.opening]),
        ("ended", [one.ending for one in summaries if one.ending]),
    ):
        if blocks:
            best = min(blocks, key=_rank)
            fields |= {**best.fields, field: best.rank}
    if any(one.is_started for one in summaries):
        fields.setdefault("status", "running")
    if any(one.is_accepted for one in summaries):
        fields["accepted"] = "1"
    return fields


def _rank(block: Block) -> str:
    return block.rank


def _merge_numbers(summaries: Sequence[TrajectorySummary], calls: dict[str, tuple[int, int]]) -> dict[str, str]:
    fields = dict[str, str]()
    if calls:
        fields = {"num_calls": str(len(calls)), "num_steps": str(sum(number for _, number in calls.values()))}
    for field, versions, choose in (
        ("policy_min", [one.policy_min for one in summaries if one.policy_min is not None], min),
        ("policy_max", [one.policy_max for one in summaries if one.policy_max is not None], max),
    ):
        if versions:
            fields[field] = str(choose(versions))
    return fields


def _enter_reward(fields: dict[str, str], rewards: dict[str, bytes]) -> list[_Name]:
    """Enter the reward into the fields; return what it is filed under."""
    outcome = make_outcome(fields.get("status", ""), fields.get("cause", "")) if "ended" in fields else None
    reward = compute_reward(fields.get("declared", ""), rewards.values(), outcome)
    if reward is None:
        return []
    fields["reward"], bucket = repr(reward), find_bucket(reward)
    return [("rewarded", "rewarded", ""), (bucket_name(bucket), "bucket", str(bucket))]


def _merge_calls(summaries: Sequence[TrajectorySummary]) -> dict[str, tuple[int, int]]:
    if len(summaries) == 1:
        return summaries[0].calls
    calls: dict[str, tuple[int, int]] = {}
    for one in summaries:
        for call, (bits, num_choices) in one.calls.items():
            known_bits, known_choices = calls.get(call, (0, 0))
            calls[call] = bits | known_bits, max(num_choices, known_choices)
    return calls


def _merge_names(summaries: Sequence[TrajectorySummary], fields: dict[str, str]) -> Iterator[_Name]:
    """Enter the lists of names into the fields; yield what they are filed under."""
    for field, bitmap in _LISTS:
        if names := {name for one in summaries for name in getattr(one, field)}:
            fields[field] = msgspec.json.encode(sorted(names)).decode()
            yield from ((name_bitmap(bitmap, name), bitmap, name) for name in names)


def _merge_labels(summaries: Sequence[TrajectorySummary], fields: dict[str, str]) -> Iterator[_Name]:
    """Enter the labels given later into the fields; yield what all labels are filed under."""
    labels = cast("dict[str, str | None]", _LABELS.decode(fields["labels"]) if "labels" in fields else {})
    given: dict[str, tuple[str, str | None]] = {}
    for one in summaries:
        for name, label in one.given_labels.items():
            if name not in given or _label_rank(given[name]) < _label_rank(label):
                given[name] = label
    if given:
        kept = {name: [rank] if value is None else [rank, value] for name, (rank, value) in sorted(given.items())}
        fields["given_labels"] = msgspec.json.encode(kept).decode()
        labels |= {name: value for name, (_, value) in given.items()}
    return ((name_label(name, value), "label", value) for name, value in labels.items() if value is not None)


def _label_rank(label: tuple[str, str | None]) -> tuple[str, str]:
    return label[0], label[1] or ""
