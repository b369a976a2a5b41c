"""Bulk entry of segments into the index: the state that commit.lua would arrive at, merged in Python.

A trajectory that Redis does not know is entered whole, many in one script, their bits of a bitmap as one string. The
parts of any other go through commit.lua. The scripts decide, so nothing is lost or doubled when two processes enter
the same in the same moment.
"""

import math
import struct
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from itertools import chain, compress
from typing import Final, NamedTuple, TypeAlias, cast

import msgspec
from redis import Redis

from agent_layer.infra import Keys, batched, read_server_change
from agent_layer.schema import Block, TrajectorySummary, trajectory_owner
from agent_layer.store.index.commit import as_text, commit_once, compute_reward, make_outcome, note_replaced
from agent_layer.store.index.filters import find_bucket, name_bitmap, name_label
from agent_layer.store.index.plan import bucket_name
from agent_layer.store.index.scripts import RESTORE
from agent_layer.store.segments.fields import COLUMNS, FIELDS
from agent_layer.store.segments.format import SealedSegment
from agent_layer.store.segments.summary import JudgementParts, split_rewards
from agent_layer.store.segments.tombstones import owner_hash

_MAX_TOGETHER: Final = 128
"""Trajectories for one script, so that Redis stays responsive."""
_MAX_WEIGHT: Final = 2_048
"""Calls, rewards and blobs of these."""
_MAX_ENTRIES: Final = 512
"""A trajectory with more calls, rewards or blobs is committed in parts."""
_MAX_KEYS: Final = 512
_MIN_TOGETHER: Final = 48
"""New trajectories for which a live commit pays: fewer would leave gaps in their block."""
_MAX_WAITING: Final = 3
"""Batches on their way to Redis while the next one is merged."""
_BITS: Final = [1 << _MAX_TOGETHER - 1 - place for place in range(_MAX_TOGETHER)]
"""Redis counts from the highest bit."""

_Name: TypeAlias = tuple[str, str, str]
"""A bitmap, its field, and the value of it that the bitmap stands for."""
_NAME_OF_ALL: Final[_Name] = ("all", "all", "")
_REWARDED: Final[_Name] = ("rewarded", "rewarded", "")
_Labels: TypeAlias = dict[str, tuple[str, str | None]]
"""Label given later → (rank, value or None for withdrawn)."""
_SINGLE: Final = [(field.name, field.bitmap) for field in FIELDS if field.bitmap and field.kind == "text"]
_LISTS: Final = [(field.name, field.bitmap) for field in FIELDS if field.bitmap and field.kind == "json"]
_LABELS: Final = msgspec.json.Decoder(dict[str, str])
_MAX_REMEMBERED: Final = 32
"""Names of a list that is remembered: thousands of long ones would fill the memory."""
_UNJUDGED: Final = JudgementParts({}, [], [], {})


class _Part(NamedTuple):
    """What one segment has of a trajectory."""

    segment: str
    place: str
    summary: TrajectorySummary


class _Whole(NamedTuple):
    """A whole trajectory, as the index will have it."""

    trajectory_id: str
    fields: dict[str, str]
    names: list[_Name]
    """All that it is filed under."""
    numbers: list[float]
    """Numbers of COLUMNS; NaN is not known."""
    chunks: dict[str, str]
    summary: TrajectorySummary
    judged: JudgementParts
    """Rewards of the summary."""


def enter_segments(redis: Redis, keys: Keys, segments: Sequence[SealedSegment], *, again: bool = False) -> None:
    """Commit segments whose objects are stored already; the index is as after ``commit_segments``.

    Quicker than that for many trajectories that the index does not have. See there for ``again``.
    """
    is_committed = False
    while not is_committed:
        change = read_server_change(redis, keys)
        entered = _enter_new(redis, keys, segments, min_together=1 if again else _MIN_TOGETHER)
        left = [_leave_out(entered, one) for one in segments] if entered else segments
        is_committed = commit_once(redis, keys, left, change, again=again)
    note_replaced(redis, keys, segments)


def _enter_new(redis: Redis, keys: Keys, segments: Sequence[SealedSegment], min_together: int) -> set[str]:
    """Enter trajectories that the index does not have, if there are enough; return them."""
    entered = set[str]()
    if sum(len(one.footer.trajectories) for one in segments) < min_together:
        return entered
    parts = _collect_parts(segments)
    rest = _find_known(redis, keys, list(parts))
    if len(parts) - len(rest) < min_together:
        return entered
    with ThreadPoolExecutor(1) as threads:
        sender = _Sender(redis, keys, threads)
        for batch in _batches(_describe_whole(name, found) for name, found in parts.items() if name not in rest):
            sender.send(batch)
            entered.update(one.trajectory_id for one in batch)
        return entered - sender.finish()


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
    known, has_dead = set[str](), bool(redis.exists(keys.dead))
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
        self._waiting: deque[tuple[Sequence[_Whole], Future[object]]] = deque()
        self._refused = set[str]()

    def send(self, batch: Sequence[_Whole]) -> None:
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


def _batches(found: Iterable[_Whole | None]) -> Iterator[list[_Whole]]:
    batch, weight = list[_Whole](), 0
    for one in found:
        if one is None:
            continue
        more = 1 + len(one.summary.calls) + len(one.summary.rewards) + len(one.summary.blobs)
        if batch and (len(batch) == _MAX_TOGETHER or weight + more > _MAX_WEIGHT):
            yield batch
            batch, weight = [], 0
        batch.append(one)
        weight += more
    if batch:
        yield batch


def _describe(batch: Sequence[_Whole]) -> dict[str, object]:
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


def _describe_row(one: _Whole) -> list[object]:
    fields, summary = one.fields, one.summary
    is_event = "status" in fields or "accepted" in fields
    return [
        one.trajectory_id,
        fields.get("run", ""),
        fields.get("status", "") if is_event else False,
        [*chain.from_iterable(fields.items())],
        [*chain.from_iterable(one.chunks.items())],
        [text for call, counts in summary.calls.items() for text in (call, _write_counts(*counts))],
        *_describe_rewards(one.judged),
        one.judged.topics,
        summary.blobs,
        "accepted" in fields,
    ]


@lru_cache(maxsize=1_024)
def _write_counts(bits: int, num_choices: int) -> str:
    return f"{bits} {num_choices}"


def _describe_rewards(judged: JudgementParts) -> tuple[Sequence[object], Sequence[object]]:
    """Return what may decide the reward of the rollout, and what does not, by the rule of commit.lua."""
    deciding, parts = [*judged.of_rollout.items()], dict[str, bytes]()
    for name, superseded, record in judged.of_parts:
        if superseded and superseded not in parts:
            deciding.append((name, record))
        else:
            parts[name] = record
    pairs = (deciding, parts.items())
    of_rollout, of_parts = ([one for name, record in some for one in (name, as_text(record))] for some in pairs)
    return of_rollout, of_parts


def _describe_mark(name: _Name, bits: int) -> list[object]:
    packed = bits.to_bytes(_MAX_TOGETHER // 8)
    tail = packed.lstrip(b"\0")
    return [*name, len(packed) - len(tail), as_text(tail.rstrip(b"\0"))]


def _describe_column(numbers: Sequence[float]) -> list[object]:
    known = [one for one in numbers if one == one]  # noqa: PLR0124 - NaN is not known
    packed = struct.pack(f"<{len(numbers)}d", *numbers)
    return [as_text(packed), min(known, default=math.inf), max(known, default=-math.inf)]


def _describe_whole(trajectory_id: str, parts: Sequence[_Part]) -> _Whole | None:
    """Return what the index has of a trajectory; None: too large for one script, or of no known start."""
    summary = parts[0].summary if len(parts) == 1 else _merge([part.summary for part in parts])
    opening, ending = summary.opening, summary.ending
    num_entries = max(len(summary.calls), len(summary.rewards), len(summary.blobs))
    if opening is None or "started_at" not in opening.fields or num_entries > _MAX_ENTRIES:
        return None
    fields = {**opening.fields, "opened": opening.rank}
    if ending is not None:
        fields |= ending.fields
        fields["ended"] = ending.rank
    if summary.is_started:
        fields.setdefault("status", "running")
    if summary.is_accepted:
        fields["accepted"] = "1"
    _enter_numbers(fields, summary)
    names = [_NAME_OF_ALL, *_enter_lists(fields, summary), *_enter_labels(fields, summary.given_labels)]
    names += [_make_name(bitmap, fields[name]) for name, bitmap in _SINGLE if name in fields]
    judged = split_rewards(summary.rewards) if summary.rewards else _UNJUDGED
    if summary.is_started or summary.ending or summary.rewards:
        names += _enter_reward(fields, judged)
    numbers = [float(fields[column]) if column in fields else math.nan for column in COLUMNS]
    return _Whole(trajectory_id, fields, names, numbers, {part.segment: part.place for part in parts}, summary, judged)


def _enter_numbers(fields: dict[str, str], summary: TrajectorySummary) -> None:
    if summary.calls:
        fields["num_calls"] = str(len(summary.calls))
        fields["num_steps"] = str(sum([choices for _, choices in summary.calls.values()]))
    if summary.policy_min is not None:
        fields["policy_min"] = str(summary.policy_min)
    if summary.policy_max is not None:
        fields["policy_max"] = str(summary.policy_max)


def _enter_lists(fields: dict[str, str], summary: TrajectorySummary) -> list[_Name]:
    """Enter the lists of names into the fields; return what they are filed under."""
    filed = list[_Name]()
    for field, bitmap in _LISTS:
        if values := cast("list[str]", getattr(summary, field)):
            file_list = _file_list if len(values) <= _MAX_REMEMBERED else _file_list.__wrapped__
            fields[field], names = file_list(bitmap, tuple(values))
            filed += names
    return filed


@lru_cache(maxsize=4_096)
def _file_list(bitmap: str, values: tuple[str, ...]) -> tuple[str, list[_Name]]:
    """Return what a row keeps of a list of names, and what it is filed under."""
    unique = sorted({*values})
    return msgspec.json.encode(unique).decode(), [_make_name(bitmap, value) for value in unique]


def _enter_labels(fields: dict[str, str], given: _Labels) -> list[_Name]:
    """Enter the labels given later into the fields; return what all labels are filed under."""
    written = fields.get("labels", "{}")
    if not given:
        return _file_labels(written)
    kept = {name: [rank] if value is None else [rank, value] for name, (rank, value) in sorted(given.items())}
    fields["given_labels"] = msgspec.json.encode(kept).decode()
    labels = _LABELS.decode(written) | {name: value for name, (_, value) in given.items()}
    return _name_labels({name: value for name, value in labels.items() if value is not None})


@lru_cache(maxsize=4_096)
def _file_labels(written: str) -> list[_Name]:
    """Return what the labels of a task are filed under; all its rollouts have the same."""
    return _name_labels(_LABELS.decode(written))


def _name_labels(labels: Mapping[str, str]) -> list[_Name]:
    return [(name_label(name, value), "label", value) for name, value in labels.items()]


def _enter_reward(fields: dict[str, str], judged: JudgementParts) -> list[_Name]:
    """Enter the reward into the fields; return what it is filed under."""
    outcome = make_outcome(fields.get("status", ""), fields.get("cause", "")) if "ended" in fields else None
    reward = compute_reward(fields.get("declared", ""), [*judged.read.values()], outcome)
    if reward is None:
        return []
    fields["reward"], bucket = repr(reward), find_bucket(reward)
    return [_REWARDED, (bucket_name(bucket), "bucket", str(bucket))]


@lru_cache(maxsize=65_536)
def _make_name(bitmap: str, value: str) -> _Name:
    """Return what a value is filed under; the same values come again and again."""
    return name_bitmap(bitmap, value), bitmap, value


def _merge(summaries: Sequence[TrajectorySummary]) -> TrajectorySummary:
    """Merge the parts of a trajectory by the rules of commit.lua; of equal ranks the first counts."""
    calls: dict[str, tuple[int, int]] = {}
    labels: _Labels = {}
    for one in summaries:
        for call, (bits, num_choices) in one.calls.items():
            known_bits, known_choices = calls.get(call, (0, 0))
            calls[call] = bits | known_bits, max(num_choices, known_choices)
        for name, label in one.given_labels.items():
            labels[name] = max(labels.get(name, label), label, key=_rank_label)
    return TrajectorySummary(
        trajectory_id=summaries[0].trajectory_id,
        opening=min((one.opening for one in summaries if one.opening), key=_rank, default=None),
        is_started=any(one.is_started for one in summaries),
        ending=min((one.ending for one in summaries if one.ending), key=_rank, default=None),
        is_accepted=any(one.is_accepted for one in summaries),
        calls=calls,
        agents=[name for one in summaries for name in one.agents],
        tools=[name for one in summaries for name in one.tools],
        policy_min=min((one.policy_min for one in summaries if one.policy_min is not None), default=None),
        policy_max=max((one.policy_max for one in summaries if one.policy_max is not None), default=None),
        rewards={name: record for one in reversed(summaries) for name, record in one.rewards.items()},
        blobs=list(dict.fromkeys(name for one in summaries for name in one.blobs)),
        findings=[name for one in summaries for name in one.findings],
        engines=[name for one in summaries for name in one.engines],
        given_labels=labels,
    )


def _rank(block: Block) -> str:
    return block.rank


def _rank_label(label: tuple[str, str | None]) -> tuple[str, str]:
    return label[0], label[1] or ""
