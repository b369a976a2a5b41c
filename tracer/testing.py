"""Testing of agents: keeps the records of rollouts in memory, identical in every run.

    >>> import tracer
    >>> @tracer.step
    ... def answer(messages):
    ...     return "42"
    >>> with tracer.testing.capture() as captured, tracer.rollout(task="sum") as rollout:
    ...     _ = answer([{"role": "user", "content": "40 + 2"}])
    ...     rollout.reward(1.0)
    >>> [step.action.message["content"] for step in captured.steps], captured.trajectory.reward
    (['42'], 1.0)
    >>> captured.messages(captured.steps[0])
    [{'role': 'user', 'content': '40 + 2'}]

Ids are counted, and each reading of the clock is a millisecond later than the one before. So an agent that does the
same, one thing at a time, leaves identical records.
"""

from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from typing import cast

from agent_layer.recorder import FlushReport
from agent_layer.schema import (
    LogRecord,
    Observation,
    Reward,
    Step,
    TraceContext,
    Trajectory,
    TrajectoryRecord,
    assemble_trajectory,
    decode,
    encode,
    resolve,
)
from agent_layer.settings import load_settings
from tracer.core import active_trace
from tracer.session import Session, use_session

_BEGINNING = 1_000_000_000.0
"""Seconds since the epoch, in 2001."""
_TICK_SECONDS = 0.001


class Captured:
    """Records of rollouts. Encodes and decodes each, as the recorder and the store would."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []

    def append(self, *records: LogRecord) -> str:
        """Add the records."""
        self.records += [cast("LogRecord", decode(encode(record))) for record in records]
        return "memory"

    def is_settled(self, log_name: str) -> bool:  # noqa: ARG002 - memory is one log
        """Always settled."""
        return True

    def flush(self, timeout: float | None = None) -> FlushReport:  # noqa: ARG002 - nothing is waited for
        """Report that nothing is pending."""
        return FlushReport(pending=0, lost=0, recorded=len(self.records))

    @property
    def trajectories(self) -> list[Trajectory]:
        """Trajectories, in the order in which their rollouts began."""
        records: defaultdict[str, list[TrajectoryRecord]] = defaultdict(list)
        for record in list(self.records):
            records[cast("TrajectoryRecord", record).trajectory_id].append(cast("TrajectoryRecord", record))
        return [assemble_trajectory(trajectory_id, found) for trajectory_id, found in records.items()]

    @property
    def trajectory(self) -> Trajectory:
        """The only trajectory."""
        (trajectory,) = self.trajectories
        return trajectory

    @property
    def steps(self) -> list[Step]:
        """Of the only trajectory, in order of start."""
        return self.trajectory.steps

    @property
    def observations(self) -> list[Observation]:
        """Of the only trajectory, in order of time."""
        return self.trajectory.observations

    @property
    def rewards(self) -> list[Reward]:
        """Of the only trajectory, in order of time, superseded ones included."""
        return self.trajectory.rewards

    def messages(self, step: Step) -> list[object]:
        """Return the messages sent to the model; [] when they were not captured."""
        return [self._content(step, key) for key in step.state.messages or ()]

    def tools(self, step: Step) -> object:
        """Return the tool definitions sent to the model; None without tools."""
        return self._content(step, step.state.tools)

    def framework(self, step: Step) -> object:
        """Return the state of the framework, such as a graph's channels by name; None without one."""
        return self._content(step, step.state.framework)

    def environment(self, step: Step) -> object:
        """Return the newest ``tracer.state`` before the step; None without one."""
        return self._content(step, step.state.environment)

    def _content(self, step: Step, key: str | None) -> object:
        contents = next(one.contents for one in self.trajectories if one.trajectory_id == step.trajectory_id)
        return None if key is None else resolve(contents, key)


class CountedClockAndIds:
    """Counted ids, and a clock that advances at each reading."""

    def __init__(self) -> None:
        self._numbers, self._ticks = count(1), count()

    def now(self) -> float:
        """See ClockAndIds."""
        return _BEGINNING + self.ticks()

    def ticks(self) -> float:
        """See ClockAndIds."""
        return round(next(self._ticks) * _TICK_SECONDS, 3)

    def new_id(self) -> str:
        """See ClockAndIds."""
        return f"{next(self._numbers):026d}"

    def new_span_id(self) -> str:
        """See ClockAndIds."""
        return f"{next(self._numbers):016x}"

    def new_trace(self) -> TraceContext:
        """See ClockAndIds."""
        return active_trace() or TraceContext(trace_id=f"{next(self._numbers):032x}")


@contextmanager
def capture() -> Generator[Captured]:
    """Context manager: keep the records of rollouts in memory, at text level; store nothing."""
    captured = Captured()
    settings = load_settings().model_copy(update={"gateway_url": None})
    with use_session(Session(settings=settings, sink=captured, clock=CountedClockAndIds())):
        yield captured
