"""This file holds shipping into the store itself: records become a segment, and the segment enters the index."""

from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import cast

from redis import Redis
from redis.exceptions import RedisError

from agent_layer.errors import CorruptRecordError, UnreachableError
from agent_layer.schema.codec import LogRecord, decode, decode_known, encode, owner_of
from agent_layer.settings import Settings
from agent_layer.store.clients import open_redis
from agent_layer.store.commit import commit_segments
from agent_layer.store.keys import Keys
from agent_layer.store.objects import open_objects
from agent_layer.store.outbox import forget_decisions, read_outbox
from agent_layer.store.patience import RedisUnreachableError
from agent_layer.store.protocols import ObjectStore
from agent_layer.store.segments import StoredRecord, build_segment, segment_key
from agent_layer.store.summary import KEPT_WHOLE

__all__ = ["DirectDestination", "open_direct", "read_record", "store_records"]


def open_direct(settings: Settings) -> "DirectDestination":
    """Connect to Redis and objects.

    Raises: UnreachableError: Redis does not answer.
    """
    return DirectDestination(Keys(settings.namespace), open_redis(settings), open_objects(settings))


def store_records(
    redis: Redis, keys: Keys, objects: ObjectStore, name: str, records: Iterable[tuple[LogRecord, bytes]]
) -> None:
    """Make a segment of records, each beside its stored form, and commit it. The same name is the same object."""
    owned: defaultdict[str, list[StoredRecord]] = defaultdict(list)
    for record, content in records:
        owned[owner_of(record)].append(StoredRecord(record, content))
    segment, sealed = build_segment(name, owned)
    objects.put(segment_key(keys, name), segment)
    commit_segments(redis, keys, [sealed])


def read_record(content: bytes) -> LogRecord:
    """Read what the index sums up; what it keeps as a whole is read with all that only a newer reader would know.

    Raises: CorruptRecordError: these bytes are no record.
    """
    record = decode_known(content)
    return cast("LogRecord", decode(content)) if isinstance(record, KEPT_WHOLE) else record


class DirectDestination:
    """One namespace of a store; see Destination."""

    num_at_once = 4

    def __init__(self, keys: Keys, redis: Redis, objects: ObjectStore) -> None:
        self._keys = keys
        self._redis = redis
        self._objects = objects

    def store(self, name: str, contents: Sequence[bytes]) -> str | None:
        """See Destination."""
        try:
            records = [(read_record(content), content) for content in contents]
        except CorruptRecordError as error:
            return str(error)
        self._store(name, records)
        return None

    def carry_decisions(self) -> int:
        """See Destination.

        Raises: CorruptRecordError: a decision is of a kind that this version does not know.
        """
        num_segments = 0
        with _asked():
            while (decisions := read_outbox(self._redis, self._keys)) is not None:
                self._store(decisions.name, [(record, encode(record)) for record in decisions.records])
                forget_decisions(self._redis, self._keys, decisions)
                num_segments += 1
        return num_segments

    def close(self) -> None:
        """See Destination."""
        self._redis.close()

    def _store(self, name: str, records: Iterable[tuple[LogRecord, bytes]]) -> None:
        with _asked():
            store_records(self._redis, self._keys, self._objects, name, records)


@contextmanager
def _asked() -> Generator[None]:
    """Say whose refusal it is when Redis does not do what it is asked."""
    try:
        yield
    except RedisUnreachableError:  # says it already
        raise
    except RedisError as error:
        raise UnreachableError(
            f"Redis: expected to take a segment into the index, found {str(error) or type(error).__name__!r};"
            " see AGENT_LAYER_REDIS_URL and the server's own log"
        ) from error
