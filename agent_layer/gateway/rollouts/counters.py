"""Counters of a gateway, and the log that counts the records that pass through it.

Counts are read from the records on their way into the log, so that figures and records cannot differ.
"""

from bisect import bisect_left
from collections import Counter
from typing import Final, Protocol, TypeAlias

from agent_layer.gateway.rollouts.log_protocol import Log
from agent_layer.recorder import PreparedRecords
from agent_layer.schema import LogRecord, StepPart, is_empty_answer, prefix_break_cause

Sample: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""Name, and labels with their values."""


class Counters:
    """Counts that only grow."""

    def __init__(self) -> None:
        self._counts: Counter[Sample] = Counter()
        self.call_seconds = Durations()
        """Of calls that ended, whatever their end."""

    def add(self, name: str, **labels: str) -> None:
        """Count one more."""
        self._counts[name, tuple(labels.items())] += 1

    def read(self) -> dict[Sample, int]:
        """Everything that was counted."""
        return dict(self._counts)


class Durations:
    """Histogram of durations, from which a scraper derives their tail."""

    BOUNDS: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
    """Seconds; one more bucket has what took longer."""

    def __init__(self) -> None:
        self.counts = [0] * (len(self.BOUNDS) + 1)
        """By bucket, without those of shorter durations."""
        self.total_seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.BOUNDS, seconds)] += 1
        self.total_seconds += seconds


class SettlingLog(Log, Protocol):
    """A log that knows which of its files are stored."""

    def is_settled(self, log_name: str) -> bool:
        """Whether everything in this file is stored and indexed."""
        ...


class CountingLog:
    """Counts calls and what was noticed of them as their records are appended.

    Args:
        log: where the records go.
        counters: what counts.
    """

    def __init__(self, log: SettlingLog, counters: Counters) -> None:
        self._log = log
        self._counters = counters
        self._started: dict[str, float] = {}
        """When each call began that has not ended, by id."""
        self.prepare = log.prepare
        self.has_room = log.has_room
        self.is_settled = log.is_settled

    def append(self, *records: LogRecord) -> str:
        """Append to the log, then count: what was refused did not happen."""
        return self.append_prepared(self.prepare(*records))

    def append_prepared(self, prepared: PreparedRecords) -> str:
        """Append to the log, then count."""
        name = self._log.append_prepared(prepared)
        for record in prepared.records:
            if isinstance(record, StepPart) and record.source == "gateway":
                self._count(record)
        return name

    def _count(self, part: StepPart) -> None:
        if part.phase == "start":
            self._counters.add("calls_started")
            self._started[part.call_id] = part.at
            return
        self._counters.add("calls_ended", status=part.status or "unknown")
        if (began := self._started.pop(part.call_id, None)) is not None:
            self._counters.call_seconds.add(max(0.0, part.at - began))
        if part.capture_level == "text":
            self._counters.add("text_level_calls")
        if is_empty_answer(part):
            self._counters.add("zero_token_calls")
        for finding in part.findings:
            if cause := prefix_break_cause(finding):
                self._counters.add("prefix_breaks", cause=cause)
