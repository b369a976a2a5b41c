"""Shipping into the store itself: records become a segment, and the segment enters the index."""

from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from redis import Redis
from redis.exceptions import RedisError

from agent_layer.errors import CorruptRecordError, UnreachableError
from agent_layer.infra import Keys, ObjectStore, RedisUnreachableError, durable_writes, open_objects, open_redis
from agent_layer.schema import ContentRef, LogRecord, decode_known, encode, record_owner
from agent_layer.settings import Settings
from agent_layer.state import Decisions, read_outbox, remove_decisions
from agent_layer.store import (
    BlobLimits,
    StoredRecord,
    build_segment,
    drop_deleted_owners,
    enter_segments,
    read_record,
    restore_index,
    segment_key,
    store_contents,
)

T = TypeVar("T")


def open_direct(settings: Settings) -> "DirectDestination":
    """Connect to Redis and objects.

    Raises: UnreachableError: Redis does not answer.
    """
    limits = BlobLimits(settings.blob_bytes, settings.media_blob_bytes)
    return DirectDestination(Keys(settings.namespace), open_redis(settings), open_objects(settings), limits)


def store_records(
    redis: Redis,
    keys: Keys,
    objects: ObjectStore,
    name: str,
    records: Iterable[StoredRecord],
    limits: BlobLimits | None = None,
) -> None:
    """Store records as a segment, with large contents as blobs beside it, and commit it without deleted ones.

    The same name is the same object.
    """
    owned: defaultdict[str, list[StoredRecord]] = defaultdict(list)
    for one in records:
        owned[record_owner(one.record)].append(one)
    live = drop_deleted_owners(redis, keys, owned)
    segment, sealed = build_segment(name, store_contents(redis, keys, objects, live, limits or BlobLimits()))
    objects.put(segment_key(keys, name), segment)
    enter_segments(redis, keys, [sealed])


def read_log_record(content: bytes) -> LogRecord:
    """Decode all of a record of a log.

    Raises: CorruptRecordError: these bytes are not a record, or one that only segments may hold.
    """
    return _check_kind(decode_known(content))


def _check_kind(record: T) -> T:
    if type(record) is ContentRef:
        raise CorruptRecordError(
            f"log record of trajectory {record.trajectory_id}: expected contents with their bodies, found a reference"
            " to a blob; only shippers may refer to blobs"
        )
    return record


class DirectDestination:
    """One namespace of a store; see Destination."""

    num_at_once = 4

    def __init__(self, keys: Keys, redis: Redis, objects: ObjectStore, limits: BlobLimits | None = None) -> None:
        self._keys = keys
        self._redis = redis
        self._objects = objects
        self._limits = limits
        self._durable = durable_writes(redis, keys)

    def store(self, name: str, contents: Sequence[bytes]) -> str | None:
        """See Destination."""
        try:
            records = [StoredRecord(_check_kind(read_record(content)), content) for content in contents]
        except CorruptRecordError as error:
            return str(error)
        self._store_durably(name, records)
        return None

    def ship_decisions(self) -> int:
        """See Destination.

        Raises: CorruptRecordError: this version does not know the kind of a decision.
        """
        num_segments = 0
        with _redis_errors():
            with suppress(UnreachableError):  # the objects are away: what waits to be stored there says so
                restore_index(self._redis, self._keys, self._objects)
            while (decisions := self._read_durable()) is not None:
                self._store_durably(
                    decisions.name, [StoredRecord(record, encode(record)) for record in decisions.records]
                )
                remove_decisions(self._redis, self._keys, decisions)
                num_segments += 1
        return num_segments

    def _read_durable(self) -> Decisions | None:
        """Return decisions that Redis cannot forget any more: once one is stored, no other may take its place."""
        if read_outbox(self._redis, self._keys) is None:
            return None
        return self._durable.complete(self._redis, lambda: read_outbox(self._redis, self._keys))

    def close(self) -> None:
        """See Destination."""
        self._redis.close()

    def _store_durably(self, name: str, records: Sequence[StoredRecord]) -> None:
        """Store records whose log, or entries in the outbox, go next: these would bring back what Redis forgets."""
        self._durable.complete(self._redis, lambda: self._store(name, records))

    def _store(self, name: str, records: Iterable[StoredRecord]) -> None:
        with _redis_errors():
            store_records(self._redis, self._keys, self._objects, name, records, self._limits)


@contextmanager
def _redis_errors() -> Generator[None]:
    """Turn refusals of Redis into UnreachableError."""
    try:
        yield
    except RedisUnreachableError:  # names its server already
        raise
    except RedisError as error:
        raise UnreachableError(
            f"Redis: expected to take a segment into the index, found {str(error) or type(error).__name__!r};"
            " see AGENT_LAYER_REDIS_URL and the server's own log"
        ) from error
