"""What the API reads: a store, the reports of training steps, vocabularies, the trajectories read last."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import NamedTuple, cast

from agent_layer.dispatcher import Dispatcher
from agent_layer.errors import NotFoundError
from agent_layer.health import HealthReader, ProgressReader, StepProgress, progress_path
from agent_layer.schema import Trajectory, check_name
from agent_layer.settings import Settings
from agent_layer.state import TokenBytes, read_vocabulary
from agent_layer.store import Index, Store

_MAX_TRAJECTORIES = 8
"""Ranges of the tokens of one trajectory are asked for one after another."""
_MAX_VOCABULARIES = 2
_MAX_REPORTS = 16
"""Runs whose reports stay parsed: each page asks for them at every change."""


class Cooled(NamedTuple):
    """What only the bucket has of a store."""

    source: "ReadContext"
    runs: Mapping[str, int]
    """Run → number of its trajectories that Redis does not know."""


class ReadContext:
    """One store, opened for reading. Threads may share it."""

    cooled: Cooled | None = None
    """What Redis lost or cooled of it; its runs are answered from there."""

    def __init__(self, settings: Settings, store: Store, *, is_archive: bool = False, is_cooled: bool = False) -> None:
        """Read a store.

        Args:
            settings: of the store.
            store: what is read.
            is_archive: its index was made from objects alone, so there is no queue.
            is_cooled: it is what another source lacks.
        """
        self.settings = settings
        self.is_cooled = is_cooled
        self.is_archive = is_archive
        self.store = store
        self.index = Index(store.redis, store.keys)
        self.dispatcher = Dispatcher(store.redis, settings)
        self.health = HealthReader(settings, store.redis, read_reports=self.progress)
        self._lock = Lock()
        self._reports_lock = Lock()  # apart: a long file of reports holds up nothing else
        self._read: OrderedDict[tuple[str, str], Trajectory] = OrderedDict()
        self._images: OrderedDict[str, tuple[Trajectory, Mapping[str, str]]] = OrderedDict()
        """By trajectory: as it was read, and the data URLs inside it by the hash of their mark."""
        self._vocabularies: OrderedDict[str, TokenBytes | None] = OrderedDict()
        self._reports: OrderedDict[str, ProgressReader] = OrderedDict()
        """By run: size and time of change of its file, and what it said then."""

    def cooled_runs(self) -> set[str]:
        """Return the runs that only the bucket has; Redis knows again those that went on."""
        if self.cooled is None:
            return set()
        known = cast("set[bytes]", self.store.redis.smembers(self.store.keys.runs))
        return {run for run in self.cooled.runs if run.encode() not in known}

    def num_cooled(self, run: str) -> int:
        """Count the trajectories of a run that only the bucket has."""
        if self.is_cooled:
            return self.store.count(run=run)
        return self.cooled.runs.get(run, 0) if self.cooled else 0

    def of_run(self, run: str) -> "ReadContext":
        """Return what a run is read from."""
        return self.cooled.source if self.cooled and run in self.cooled_runs() else self

    def of_trajectory(self, trajectory_id: str) -> "ReadContext":
        """Return what a trajectory is read from."""
        if self.cooled is None or self.index.rows([trajectory_id]):
            return self
        return self.cooled.source if self.cooled.source.index.rows([trajectory_id]) else self

    def trajectory(self, trajectory_id: str) -> Trajectory:
        """Return a trajectory without its blobs, as it is now. Raises: NotFoundError, CorruptRecordError."""
        place = trajectory_id, repr(self.index.chunks(trajectory_id))
        with self._lock:
            if (known := self._read.get(place)) is not None:
                self._read.move_to_end(place)
                return known
        found = self.store.get(trajectory_id, blobs=False)
        with self._lock:
            self._read[place] = found
            while len(self._read) > _MAX_TRAJECTORIES:
                self._read.popitem(last=False)
        return found

    def images(self, whole: Trajectory, find: Callable[[], Mapping[str, str]]) -> Mapping[str, str]:
        """Return the data URLs inside a trajectory by the hash of their mark; they are found once."""
        with self._lock:
            known = self._images.get(whole.trajectory_id)
        if known is not None and known[0] is whole:
            return known[1]
        found = find()
        with self._lock:
            self._images[whole.trajectory_id] = whole, found
            while len(self._images) > _MAX_TRAJECTORIES:
                self._images.popitem(last=False)
        return found

    def vocabulary(self, tokenizer_hash: str | None) -> TokenBytes | None:
        """Return the bytes of a tokenizer's tokens; None: they are not stored."""
        if tokenizer_hash is None:
            return None
        with self._lock:
            if (known := self._vocabularies.get(tokenizer_hash)) is not None:
                return known
        found = read_vocabulary(self.store.keys, self.store.objects, tokenizer_hash)
        with self._lock:
            self._vocabularies[tokenizer_hash] = found
            while len(self._vocabularies) > _MAX_VOCABULARIES:
                self._vocabularies.popitem(last=False)
        return found

    def index_state(self) -> tuple[bytes, ...]:
        """Return what differs after each change of the index: the newest entries of the streams that announce them."""
        pipeline = self.index.pipeline()
        for stream in (self.store.keys.events, self.store.keys.steps):
            pipeline.xrevrange(stream, count=1)
        newest = cast("list[list[tuple[bytes, object]]]", pipeline.execute())
        return tuple(entries[0][0] if entries else b"" for entries in newest)

    def progress(self, run: str) -> list[StepProgress]:
        """Return the reports of a run's steps; none where the trainer runs on another machine."""
        with self._reports_lock:
            reader = self._reports.pop(run, None) or ProgressReader(
                progress_path(self.settings, check_name(run, "run"))
            )
            self._reports[run] = reader
            while len(self._reports) > _MAX_REPORTS:
                self._reports.popitem(last=False)
            return reader.read()


def refuse_archive(source: ReadContext, subject: str) -> None:
    """Raise NotFoundError: the source is a bucket alone, which has nothing of what runs now."""
    if source.is_archive:
        raise NotFoundError(
            f"{subject}: expected Redis, found a bucket alone, which knows no workers, leases, engines, sandboxes or"
            " dead letters; 'view' of a store whose Redis has a run shows them"
        )
