"""This file holds which trajectories are to be exported: those that are stored, then those that end.

Where a feed stands is remembered under its consumer's name once what it gave was dealt with, so that one that is
started again goes on from there. When it was away for longer than the store's events are kept, it begins anew: what is
given twice becomes the same spans.
"""

import time
from collections.abc import Iterator
from typing import Unpack, cast

from agent_layer.schema.rollout import FINAL_STATUSES
from agent_layer.store.filters import Filters
from agent_layer.store.rows import TrajectoryRow
from agent_layer.store.store import Store

__all__ = ["Feed"]

_PAGE = 256
_LINGER_SECONDS = 2.0
"""Acceptance and rewards that come so soon after an end are exported with it."""


class Feed:
    """Trajectories that have ended and meet the filters."""

    def __init__(self, store: Store, consumer: str, **filters: Unpack[Filters]) -> None:
        self._store = store
        self._place = store.keys.exported(consumer)
        self._filters = filters
        self._position = b""
        self._ended: dict[str, float] = {}
        """Id → when it may be given, oldest first."""

    def stored(self) -> Iterator[str]:
        """Give all that have ended so far, in order of their start."""
        cursor = None
        while True:
            page = self._store.query(order="oldest", limit=_PAGE, cursor=cursor, **self._filters)
            yield from (row.trajectory_id for row in page.items if row.status in FINAL_STATUSES)
            if (cursor := page.cursor) is None:
                return

    def resume(self) -> bool:
        """Take up the place where this consumer was; says whether it was known, else ``stored`` comes first."""
        redis, events = self._store.redis, self._store.keys.events
        known = cast("bytes | None", redis.get(self._place))
        is_kept = known is not None and bool(redis.xrange(events, known, known))
        newest = cast("list[tuple[bytes, object]]", redis.xrevrange(events, count=1))
        self._position = known if is_kept and known else newest[0][0] if newest else b"0-0"
        return is_kept

    def ended(self, wait_seconds: float) -> list[str]:
        """Wait for further ends, and give those that are due; empty when there is none yet."""
        self._listen(1 if self._due() else max(1, int(1_000 * wait_seconds)))
        return self._due()

    def remember(self, trajectory_ids: list[str]) -> None:
        """Know that these were dealt with."""
        for trajectory_id in trajectory_ids:
            self._ended.pop(trajectory_id, None)
        if not self._ended:
            self._store.redis.set(self._place, self._position)

    def _due(self) -> list[str]:
        now = time.monotonic()
        return [trajectory_id for trajectory_id, due_at in self._ended.items() if due_at <= now]

    def _listen(self, wait_ms: int) -> None:
        events = self._store.keys.events
        found = self._store.redis.xread({events: self._position}, count=_PAGE, block=wait_ms)
        for _, entries in cast("list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]]", found):
            for entry_id, fields in entries:
                self._position = entry_id
                self._note(fields)

    def _note(self, fields: dict[bytes, bytes]) -> None:
        if fields.get(b"kind") != b"trajectory" or fields.get(b"status", b"").decode() not in FINAL_STATUSES:
            return
        row = self._store.row(fields[b"trajectory_id"].decode())
        if self._wants(row):
            self._ended.setdefault(row.trajectory_id, time.monotonic() + _LINGER_SECONDS)

    def _wants(self, row: TrajectoryRow) -> bool:
        wanted = self._filters
        return (
            wanted.get("run") in (None, row.run)
            and wanted.get("task") in (None, row.task_id)
            and wanted.get("accepted") in (None, row.accepted)
        )
