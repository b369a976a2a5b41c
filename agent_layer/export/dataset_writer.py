"""Writer that keeps a dataset equal to the store: filled once, then updated with each change."""

from collections.abc import Callable, Iterable, Iterator

from agent_layer.errors import CorruptRecordError
from agent_layer.export.dataset import Dataset, DatasetEntry
from agent_layer.export.feed import Feed
from agent_layer.store import Store, TrajectoryRow, Which, pick_steps, tabulate_steps

_BATCH = 1_024
_BATCH_BYTES = 32 << 20


class DatasetWriter:
    """Writes the trajectories of a feed into a dataset.

    Args:
        store: source of the trajectories.
        feed: of the dataset's filters, at the dataset's place.
        dataset: the dataset to update.
        contents: also write messages and tools.
        step: steps to keep of each trajectory; None: all.
        on_corrupt: called for each unreadable trajectory; its earlier rows stay.
    """

    def __init__(
        self,
        store: Store,
        feed: Feed,
        dataset: Dataset,
        *,
        contents: bool,
        step: Which | None,
        on_corrupt: Callable[[CorruptRecordError], None],
    ) -> None:
        self._store = store
        self._feed = feed
        self._dataset = dataset
        self._contents = contents
        self._step: Which | None = step
        self._on_corrupt = on_corrupt

    def write_all(
        self, progress: Callable[[int], None] = lambda _: None, is_stopped: Callable[[], bool] = lambda: False
    ) -> int | None:
        """Make the dataset equal to the query's current result; return the number of trajectories.

        Args:
            progress: receives the number written so far.
            is_stopped: checked before each part; if True, the dataset is sound but incomplete, and None is returned.
        """
        answered: set[str] = set()
        for batch in _batches(self._entries(_collect_ids(self._feed.scan_stored(), answered))):
            if is_stopped():
                return None
            self._dataset.put(batch)
            progress(len(answered))
        self._dataset.drop(set(self._dataset.trajectory_ids) - answered)
        self._feed.mark_done()
        return len(answered)

    def write_changes(self, wait_seconds: float) -> int:
        """Wait for changes and apply those that are due; return the number of trajectories they concern."""
        changed = self._feed.wait_changed(wait_seconds)[:_BATCH]
        rows = self._feed.matching_rows(changed)
        for batch in _batches(self._entries(rows)):
            self._dataset.put(batch)
        self._dataset.drop(set(changed) - {row.trajectory_id for row in rows})
        self._feed.mark_done(changed)
        return len(changed)

    def _entries(self, rows: Iterable[TrajectoryRow]) -> Iterator[DatasetEntry]:
        for row, trajectory in self._store.read(rows, contents=self._contents, on_corrupt=self._on_corrupt):
            steps = trajectory.steps if self._step is None else pick_steps(trajectory, self._step)
            yield DatasetEntry(row=row, steps=tabulate_steps(trajectory, steps, contents=self._contents))


def _collect_ids(rows: Iterable[TrajectoryRow], trajectory_ids: set[str]) -> Iterator[TrajectoryRow]:
    for row in rows:
        trajectory_ids.add(row.trajectory_id)
        yield row


def _batches(entries: Iterable[DatasetEntry]) -> Iterator[list[DatasetEntry]]:
    batch: list[DatasetEntry] = []
    num_bytes = 0
    for entry in entries:
        batch.append(entry)
        num_bytes += entry.steps.nbytes
        if len(batch) >= _BATCH or num_bytes >= _BATCH_BYTES:
            yield batch
            batch, num_bytes = [], 0
    if batch:
        yield batch
