"""This file holds what tests of agents need: the records of rollouts, kept in memory."""

from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

from agent_layer.recorder.log import FlushReport
from agent_layer.schema.codec import LogRecord, decode, encode
from agent_layer.schema.trajectory import Trajectory, TrajectoryRecord, assemble_trajectory
from agent_layer.settings import load_settings
from tracer.tracing import Tracing, trace_into

__all__ = ["Captured", "capture"]


class Captured:
    """What rollouts recorded. Takes the place of the recorder, to the letter: a record must survive being stored."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []

    def append(self, *records: LogRecord) -> str:
        """Keep the records."""
        self.records += [cast("LogRecord", decode(encode(record))) for record in records]
        return "memory"

    def is_settled(self, log_name: str) -> bool:  # noqa: ARG002 - memory is one log
        """Memory has nowhere else to go."""
        return True

    def flush(self, timeout: float | None = None) -> FlushReport:  # noqa: ARG002 - nothing is waited for
        """Nothing is ever pending."""
        return FlushReport(pending=0, lost=0, recorded=len(self.records))

    @property
    def trajectories(self) -> list[Trajectory]:
        """What the records make, in the order in which the rollouts began."""
        records: defaultdict[str, list[TrajectoryRecord]] = defaultdict(list)
        for record in self.records:
            records[cast("TrajectoryRecord", record).trajectory_id].append(cast("TrajectoryRecord", record))
        return [assemble_trajectory(trajectory_id, found) for trajectory_id, found in records.items()]

    @property
    def trajectory(self) -> Trajectory:
        """The only trajectory."""
        (trajectory,) = self.trajectories
        return trajectory


@contextmanager
def capture() -> Generator[Captured]:
    """Keep what rollouts in this block record in memory, at text level, and store nothing."""
    captured = Captured()
    settings = load_settings().model_copy(update={"gateway_url": None})
    with trace_into(Tracing(settings=settings, sink=captured)):
        yield captured
