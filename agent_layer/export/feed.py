"""Feed of trajectories to export: first those already stored, then those that end or change.

A feed saves its position after its trajectories were handled, so a restarted feed resumes there. If it was away for
longer than the store keeps events, it starts from the beginning; a trajectory delivered twice changes nothing.
"""

import time
from collections.abc import Collection, Iterator
from typing import Protocol, Unpack, cast

from agent_layer.errors import NotFoundError
from agent_layer.schema import FINAL_STATUSES
from agent_layer.store import Filters, Store, TrajectoryRow
from agent_layer.times import parse_time

_LINGER_SECONDS = 2.0
"""Seconds to wait after an end, so that acceptance and rewards are exported with it."""
_CUT_SECONDS = 0.001
"""Row times are truncated to milliseconds."""
_MAX_EVENTS = 256


class FeedPosition(Protocol):
    """Storage of a feed's position in the store's events."""

    def load(self) -> bytes | None:
        """Return the id of the last handled event; None at the beginning."""
        ...

    def save(self, position: bytes) -> None:
        """Save the id of the last handled event."""
        ...


class StoreFeedPosition:
    """Position in Redis, under the consumer's name."""

    def __init__(self, store: Store, consumer: str) -> None:
        self._redis = store.redis
        self._key = store.keys.exported(consumer)

    def load(self) -> bytes | None:
        """See FeedPosition."""
        return cast("bytes | None", self._redis.get(self._key))

    def save(self, position: bytes) -> None:
        """See FeedPosition."""
        self._redis.set(self._key, position)


class Feed:
    """Trajectories that have ended and meet the filters."""

    def __init__(self, store: Store, place: FeedPosition, **filters: Unpack[Filters]) -> None:
        self._store = store
        self._place = place
        self._filters = filters
        self._position = b""
        self._due: dict[str, float] = {}
        """Id → when it is due, oldest first."""

    def scan_stored(self) -> Iterator[TrajectoryRow]:
        """Return all trajectories that have ended so far, in order of their start."""
        return (row for row in self._store.scan(**self._filters) if row.status in FINAL_STATUSES)

    def resume(self) -> bool:
        """Resume at the consumer's position; return False if there is none, then read ``scan_stored`` first."""
        redis, events = self._store.redis, self._store.keys.events
        known = self._place.load()
        is_kept = known is not None and bool(redis.xrange(events, known, known))
        newest = cast("list[tuple[bytes, object]]", redis.xrevrange(events, count=1))
        self._position = known if is_kept and known else newest[0][0] if newest else b"0-0"
        return is_kept

    def wait_changed(self, wait_seconds: float) -> list[str]:
        """Wait for trajectories that end or change after their end; return those that are due, possibly none."""
        wait_ms = 1 if self._due_ids() else max(1, int(1_000 * wait_seconds))
        events = self._store.keys.events
        found = self._store.redis.xread({events: self._position}, count=_MAX_EVENTS, block=wait_ms)
        for _, entries in cast("list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]]", found):
            for entry_id, fields in entries:
                self._position = entry_id
                kind, status = fields.get(b"kind"), fields.get(b"status", b"").decode()
                if kind in (b"addition", b"deleted") or (kind == b"trajectory" and status in FINAL_STATUSES):
                    self._due.setdefault(fields[b"trajectory_id"].decode(), time.monotonic() + _LINGER_SECONDS)
        return self._due_ids()

    def matching_rows(self, trajectory_ids: Collection[str]) -> list[TrajectoryRow]:
        """Return the rows of those that exist, have ended and match the filters."""
        return [row for trajectory_id in trajectory_ids for row in self._matching_row(trajectory_id)]

    def mark_done(self, trajectory_ids: Collection[str] = ()) -> None:
        """Record that these were handled."""
        for trajectory_id in trajectory_ids:
            self._due.pop(trajectory_id, None)
        if not self._due:
            self._place.save(self._position)

    def _due_ids(self) -> list[str]:
        now = time.monotonic()
        return [trajectory_id for trajectory_id, due_at in self._due.items() if due_at <= now]

    def _matching_row(self, trajectory_id: str) -> Iterator[TrajectoryRow]:
        """Ask the store whether it matches the filters, among those that began in the same millisecond."""
        try:
            row = self._store.row(trajectory_id)
        except NotFoundError:  # deleted
            return
        if row.started_at is not None and row.status in FINAL_STATUSES:
            at_that_time = self._store.scan(**_narrowed(self._filters, row.started_at))
            yield from (found for found in at_that_time if found.trajectory_id == trajectory_id)


def _narrowed(filters: Filters, started_at: str) -> Filters:
    """Return the same filters, narrowed to the millisecond in which a trajectory began."""
    now = time.time()
    begin = parse_time(started_at, "started_at", now)
    since, until = _seconds(filters.get("since"), now), _seconds(filters.get("until"), now)
    earliest = begin if since is None else max(begin, since)
    latest = begin + _CUT_SECONDS if until is None else min(begin + _CUT_SECONDS, until)
    return {**filters, "since": earliest, "until": latest}


def _seconds(moment: float | str | None, now: float) -> float | None:
    return parse_time(moment, "time", now) if isinstance(moment, str) else moment
