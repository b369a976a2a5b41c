"""This program reads for as long as it may: ``reader.py STOP_FILE``; ends with 1 when the store breaks a promise."""

import random
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

from agent_layer.settings import load_settings
from agent_layer.store import Store, open_store
from agent_layer.store.index.rows import TrajectoryRow

_MAX_PAGES, _MAX_GROUPS = 5, 5


class Reader:
    """What one reader has seen, and may never see undone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, tuple[int, ...]] = {}
        self._groups: Counter[str] = Counter()
        self.num_reads = 0

    def page(self) -> list[TrajectoryRow]:
        """No trajectory stands on two pages, and what follows is never newer; those whose start is on its way move."""
        rows, cursor = [], None
        for _ in range(_MAX_PAGES):
            page = self._store.query(limit=7, cursor=cursor)
            rows += page.items
            if (cursor := page.cursor) is None:
                break
        known = [row for row in rows if row.task_id is not None]
        ids = [row.trajectory_id for row in known]
        assert len(set(ids)) == len(ids), f"twice on pages: {ids}"
        starts = [row.started_at or "" for row in known]
        assert starts == sorted(starts, reverse=True), f"out of order: {starts}"
        return rows

    def compare(self, row: TrajectoryRow) -> None:
        """A row never goes back."""
        stands = (row.status == "completed", row.accepted, row.reward is not None, row.num_steps)
        before = self._seen.get(row.trajectory_id, stands)
        assert all(now >= then for now, then in zip(stands, before, strict=True)), f"{row}: was {before}"
        self._seen[row.trajectory_id] = stands

    def read(self, row: TrajectoryRow) -> None:
        """The records that a row counts exist, each once."""
        trajectory = self._store.get(row.trajectory_id)
        calls = [step.call_id for step in trajectory.steps]
        assert len(set(calls)) == len(calls) >= row.num_steps, f"{row}: {calls}"
        rewards = [reward.reward_id for reward in trajectory.rewards]
        assert len(set(rewards)) == len(rewards), f"{row}: {rewards}"
        assert trajectory.accepted is not None or not row.accepted, f"{row}: acceptance without its record"

    def follow(self, consumer: str) -> None:
        """A group comes once, and whole."""
        for delivery in islice(self._store.follow(consumer, "r", wait_seconds=0), _MAX_GROUPS):
            self._groups[delivery.group.group_id] += 1
            assert self._groups[delivery.group.group_id] == 1, f"twice: {delivery.group}"
            assert len(delivery.trajectories) == 1, f"short: {delivery.group}"
            delivery.ack()

    def go_on(self, consumer: str) -> None:
        """Read everything once."""
        rows = self.page()
        for row in rows:
            self.compare(row)
        for row in random.sample(rows, min(5, len(rows))):
            self.read(row)
        self.follow(consumer)
        self.num_reads += 1


def main() -> None:
    """Read until the file exists."""
    stop, reader = Path(sys.argv[1]), Reader(open_store(load_settings()))
    while reader.num_reads == 0 or not stop.exists():
        reader.go_on(f"reader-{sys.argv[2]}")
    sys.stdout.write(f"{reader.num_reads}\n")


if __name__ == "__main__":
    main()
