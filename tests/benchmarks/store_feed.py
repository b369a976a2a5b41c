"""Feed of trajectories into the store on the production path: logs written here, shipped by another process."""

import time
from collections.abc import Iterable, Sequence

import msgspec

from agent_layer.infra.objects.filesystem import open_objects
from agent_layer.recorder import Recorder, open_recorder
from agent_layer.schema.codec import LogRecord
from agent_layer.schema.rollout import Outcome
from agent_layer.settings import Settings

__all__ = ["Appends", "StoreFigures", "feed", "write_logs"]

Appends = list[list[LogRecord]]
"""The records of one trajectory, those together that are written together."""

_MAX_SECONDS = 300.0
_NEVER = {"log_roll_seconds": 3_600.0, "log_roll_bytes": 1 << 30}


class StoreFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What storing some trajectories took."""

    num_trajectories: int
    seconds: float
    """From the first append until the last is queryable."""
    num_objects: int
    num_bytes: int

    @property
    def per_second(self) -> float:
        """Trajectories."""
        return self.num_trajectories / self.seconds

    @property
    def kilobytes_each(self) -> float:
        """Return the stored kilobytes of one trajectory."""
        return self.num_bytes / self.num_trajectories / 1000


def feed(settings: Settings, trajectories: Sequence[Appends], per_segment: int) -> StoreFigures:
    """Write logs of ``per_segment`` trajectories, each on disk before the next begins; wait until all are queryable.

    The shipper is started by a record that does not count.
    """
    recorder = open_recorder(settings.model_copy(update=_NEVER))
    recorder.append(Outcome(trajectory_id="first-0", run="first", status="cancelled", ended_at=0.0))
    _flush(recorder)
    began = time.perf_counter()
    write_logs(recorder, trajectories, per_segment)
    _flush(recorder)
    seconds = time.perf_counter() - began
    objects = open_objects(settings)
    sizes = [len(objects.get(key)) for key in objects.list("")]
    return StoreFigures(
        num_trajectories=len(trajectories), seconds=seconds, num_objects=len(sizes) - 1, num_bytes=sum(sizes)
    )


def write_logs(recorder: Recorder, trajectories: Iterable[Appends], per_log: int) -> None:
    """Write logs of ``per_log`` trajectories each."""
    num_written = 0
    for num_written, appends in enumerate(trajectories, start=1):
        for records in appends:
            recorder.append(*records)
        if num_written % per_log == 0:
            recorder.close()
    if num_written % per_log:
        recorder.close()


def _flush(recorder: Recorder) -> None:
    report = recorder.flush(_MAX_SECONDS)
    if report.pending or report.lost:
        raise RuntimeError(f"expected all records to be shipped within {_MAX_SECONDS:g} s, found {report}")
