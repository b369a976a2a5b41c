"""This file holds shipping: closed logs and decisions become segments, segments enter the index, then logs go.

In this order: fsync of the log, object, index, mark, deletion. A shipper that dies anywhere in between is followed by
one that makes the same object of the same log, so that nothing is lost and nothing is there twice.
"""

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import cast

from redis import Redis

from agent_layer.errors import CorruptRecordError
from agent_layer.recorder.frames import is_damaged, read_frames
from agent_layer.recorder.logfile import CLOSED, CORRUPT, OPEN, adopt
from agent_layer.schema.codec import LogRecord, decode, decode_known, encode, owner_of
from agent_layer.store.commit import commit_segments
from agent_layer.store.keys import Keys
from agent_layer.store.outbox import forget_decisions, read_outbox
from agent_layer.store.protocols import ObjectStore
from agent_layer.store.segments import StoredRecord, build_segment, segment_key
from agent_layer.store.summary import KEPT_WHOLE
from agent_layer.store.tombstones import leave_out_dead

__all__ = ["Shipper"]

_NUM_AT_ONCE = 4
"""Logs in transit at the same time; a store far away answers slowly."""

_NAME = "[0-9a-z]" * 26 + "-*"
"""What logs are called; whatever else lies beside them is not ours."""

log = logging.getLogger(__name__)


class Shipper:
    """Ships one log directory into one namespace; once ``stop`` is set, no log is begun any more."""

    def __init__(self, directory: Path, keys: Keys, redis: Redis, objects: ObjectStore, stop: threading.Event) -> None:
        self._directory = directory
        self._keys = keys
        self._redis = redis
        self._objects = objects
        self._stop = stop
        self._threads = ThreadPoolExecutor(_NUM_AT_ONCE, thread_name_prefix="ship")

    def ship_pending(self) -> int:
        """Ship all that is ready; give the number of segments made.

        Raises: UnreachableError or RedisError: a server did not do its part; all that was not shipped is still there.
        """
        in_transit = [self._threads.submit(self._ship_log, path) for path in self._find_logs()]
        wait(in_transit)  # also when one fails: no log may be in transit twice
        num_shipped = sum(shipped.result() for shipped in in_transit)
        while self._ship_decisions():
            num_shipped += 1
        return num_shipped

    def has_logs(self) -> bool:
        """Whether logs lie there, of writers that live or not."""
        return any(path for ending in (OPEN, CLOSED) for path in self._directory.glob(f"{_NAME}{ending}"))

    def _find_logs(self) -> list[Path]:
        """Logs that nobody writes any more, oldest first."""
        for path in self._directory.glob(f"{_NAME}{OPEN}"):
            if adopt(path):
                log.info("log adopted name=%s", path.stem)
        return sorted(self._directory.glob(f"{_NAME}{CLOSED}"))

    def _ship_log(self, path: Path) -> bool:
        if self._stop.is_set():
            return False
        stored = _read_synced(path)
        contents, num_torn = read_frames(stored)
        try:
            records = [(_read(content), content) for content in contents]
        except CorruptRecordError as error:
            _set_aside(path, str(error))
            return False
        if records:
            self._store(path.stem, records)
        if is_damaged(torn := stored[len(stored) - num_torn :]):
            _set_aside(path, f"a record after the first {len(records)}, and what follows it, is not what was written")
            return bool(records)
        if torn:
            log.warning(
                "log has a torn end name=%s num_records=%d num_torn_bytes=%d", path.stem, len(records), num_torn
            )
        path.unlink()
        return bool(records)

    def _ship_decisions(self) -> bool:
        decisions = read_outbox(self._redis, self._keys)
        if decisions is None:
            return False
        self._store(decisions.name, [(record, encode(record)) for record in decisions.records])
        forget_decisions(self._redis, self._keys, decisions)
        return True

    def _store(self, name: str, records: Iterable[tuple[LogRecord, bytes]]) -> None:
        owned: defaultdict[str, list[StoredRecord]] = defaultdict(list)
        for record, content in records:
            owned[owner_of(record)].append(StoredRecord(record, content))
        segment, sealed = build_segment(name, leave_out_dead(self._redis, self._keys, owned))
        self._objects.put(segment_key(self._keys, name), segment)
        commit_segments(self._redis, self._keys, [sealed])


def _read(content: bytes) -> LogRecord:
    """Read what the index sums up; what it keeps as a whole is read with all that only a newer reader would know."""
    record = decode_known(content)
    return cast("LogRecord", decode(content)) if isinstance(record, KEPT_WHOLE) else record


def _set_aside(path: Path, reason: str) -> None:
    path.rename(path.with_suffix(CORRUPT))
    log.critical("log set aside name=%s error=%s", path.stem, reason)


def _read_synced(path: Path) -> bytes:
    """Read a log that is on disk: one that a power loss cuts short later must not replace its own whole segment."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return file.read()
