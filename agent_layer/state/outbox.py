"""Outbox: decisions that Lua scripts made in Redis, on their way into a segment.

An entry stays until its segment is committed. Every reader of the same entries makes the same segment of them.
"""

from collections.abc import Mapping
from typing import TypeAlias, cast

import msgspec
from redis import Redis

from agent_layer.errors import CorruptRecordError
from agent_layer.infra import Keys
from agent_layer.schema import Accepted, Fill, Group, LogRecord, Outcome, Split, content_hash, new_id

_MAX_BATCH_SIZE = 256
_HASH_LETTERS = 12
_Entries: TypeAlias = list[tuple[bytes, dict[bytes, bytes]]]


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest entries of the outbox, ready to be stored."""

    name: str
    """Name of their segment."""
    records: list[LogRecord]
    entry_ids: list[bytes]


def read_outbox(redis: Redis, keys: Keys) -> Decisions | None:
    """Read the oldest entries; None when there are none.

    Their number is stored first. A reader that repeats this, after a crash between storing and committing, so makes
    the same segment, not a larger one beside it.

    Raises: CorruptRecordError: this version does not know the kind of an entry.
    """
    found = cast("_Entries", redis.xrange(keys.outbox, count=_MAX_BATCH_SIZE))
    if not found:
        return None
    redis.hsetnx(keys.outbox_batch, "size", len(found))
    found = found[: int(cast("bytes", redis.hget(keys.outbox_batch, "size") or b"0")) or None]
    return Decisions(
        name=_name_batch(found),
        records=[
            _make_record({name.decode(): value.decode() for name, value in fields.items()}) for _, fields in found
        ],
        entry_ids=[entry_id for entry_id, _ in found],
    )


def remove_decisions(redis: Redis, keys: Keys, decisions: Decisions) -> None:
    """Remove entries whose segment is committed."""
    together = redis.pipeline(transaction=True)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    together.xdel(keys.outbox, *decisions.entry_ids)
    together.unlink(keys.outbox_batch)
    together.execute()


def _name_batch(entries: _Entries) -> str:
    """Return a name that no other entries have: after Redis forgot some, others may follow the same first one."""
    milliseconds, sequence = map(int, entries[0][0].split(b"-"))
    identity = new_id(lambda: milliseconds * 1_000_000, lambda size: sequence.to_bytes(size, "big"))
    return f"{identity}-outbox-{len(entries)}-{content_hash(msgspec.msgpack.encode(entries))[:_HASH_LETTERS]}"


def _make_record(entry: Mapping[str, str]) -> LogRecord:
    match entry["kind"]:
        case "accepted":
            return Accepted(
                trajectory_id=entry["trajectory_id"],
                rollout_id=entry["rollout_id"],
                run=entry["run"],
                accepted_at=float(entry["at"]),
                group_id=entry["group_id"] or None,
            )
        case "lost" | "cancelled" as status:
            return Outcome(
                trajectory_id=entry["trajectory_id"],
                run=entry["run"],
                status=status,
                cause="infra" if status == "lost" else "user",
                ended_at=float(entry["at"]),
                error=entry["error"],
            )
        case "group":
            group = Group(
                group_id=entry["group_id"],
                run=entry["run"],
                task_id=entry["task_id"],
                task_type=entry["task_type"],
                split=cast("Split", entry["split"]),
                group_size=int(entry["group_size"]),
                closed_at=float(entry["at"]),
                trajectory_ids=entry["members"].split(",") if entry["members"] else [],
            )
            return _filled(group, entry) if "fill" in entry else group  # not in those of earlier versions
        case kind:
            raise CorruptRecordError(
                f"outbox: expected decisions of kind accepted, lost, cancelled or group, found {kind!r};"
                " run the newest version"
            )


def _filled(group: Group, entry: Mapping[str, str]) -> Group:
    return msgspec.structs.replace(
        group,
        fill=cast("Fill", entry["fill"]),
        num_launched=int(entry["num_launched"]),
        num_usable=int(entry["num_usable"]),
        num_surplus=int(entry["num_surplus"]),
        kept_seconds=_seconds(entry["kept_seconds"]),
        surplus_seconds=_seconds(entry["surplus_seconds"]),
    )


def _seconds(text: str) -> float | None:
    return float(text) if text else None
