"""This file holds what happens to the spans of a request: each finds its trajectory and becomes records.

The records are in the log before the request is answered. Sending a request again changes nothing.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, cast

import msgspec

from agent_layer import otel_names as names
from agent_layer.errors import BadInputError
from agent_layer.ingest.conventions import see
from agent_layer.ingest.grouping import Grouping, Home, Recent
from agent_layer.ingest.records import call_id_of, observation_of, outcome_of, parts_of, start_of
from agent_layer.ingest.spans import AgentRun, ModelCall, Seen, SpanReceived, ToolCall, text_of
from agent_layer.ingest.times import is_believable
from agent_layer.schema import AttemptStarted, Content, JsonObject, LogRecord, check_storable

_IDS = re.compile(r"(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{16}")


class Log(Protocol):
    """Where records go; the recorder is one."""

    def append(self, *records: LogRecord) -> str:
        """Keep records, safe from the death of this process."""
        ...


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request."""

    num_spans: int
    """All that were sent; those that tell of no model are passed over, and count as taken."""
    num_rejected: int
    reason: str
    """Why the first one was rejected; empty when none was."""


class Intake:
    """Takes requests in, one at a time."""

    def __init__(self, log: Log, run: str) -> None:
        self._log = log
        self._run = run
        self._grouping = Grouping()
        self._begun: Recent[str, float] = Recent()
        """When trajectories began that these spans made, by id."""
        self._stored: Recent[tuple[str, str], bool] = Recent()
        """(trajectory, hash) of contents that are in the log."""
        self._asked: Recent[tuple[str, str], str] = Recent()
        """Call that asked for a tool, by (trajectory, tool call id)."""

    def take(self, spans: Sequence[SpanReceived], named: str | None = None) -> Taken:
        """Put the spans into the log.

        Args:
            spans: of one request.
            named: trajectory that they belong to, unless they say otherwise.

        Raises: BackPressureError: the log is full; nothing was taken.
        """
        faults: list[str] = []
        sound = list(self._learn(spans, named, faults))
        homes: defaultdict[Home, list[SpanReceived]] = defaultdict(list)
        for span in sound:
            homes[self._grouping.home_of(span, named)].append(span)
        records = [record for home, ours in homes.items() for record in self._records(home, ours, faults)]
        if records:
            self._log.append(*records)
            self._remember(records)
        return Taken(num_spans=len(spans), num_rejected=len(faults), reason=faults[0] if faults else "")

    def _learn(self, spans: Iterable[SpanReceived], named: str | None, faults: list[str]) -> Iterator[SpanReceived]:
        for span in spans:
            try:
                _check(span)
                self._grouping.learn(span, named)
            except BadInputError as error:
                faults.append(str(error))
            else:
                yield span

    def _records(self, home: Home, spans: Sequence[SpanReceived], faults: list[str]) -> Iterator[LogRecord]:
        """Records of one trajectory's spans; none where no span tells of a model or tool."""
        family = _Family(spans)
        told = [span for span in spans if isinstance(family.seen[span.span_id], ModelCall | ToolCall)]
        begun_at = self._begun.get(home.trajectory_id)
        if not told and begun_at is None:
            return
        if not home.is_named and (begun_at is None or min(span.began_at for span in spans) < begun_at):
            yield start_of(home, spans, self._run)
        for span in sorted(told, key=lambda span: span.began_at):
            try:
                yield from self._records_of(home, span, family)
            except (BadInputError, RecursionError) as error:  # the second: nested deeper than records can be
                faults.append(str(error))
        if home.ends_with_root:
            yield from (outcome_of(span, home, self._run) for span in spans if span.parent_id is None)

    def _records_of(self, home: Home, span: SpanReceived, family: "_Family") -> list[LogRecord]:
        seen, agent = family.seen[span.span_id], family.agent_of(span)
        records: list[LogRecord] = []
        if isinstance(seen, ModelCall):
            contents, parts = parts_of(span, seen, home, self._run, agent)
            fresh = {one.hash: one for one in contents if not self._stored.get((home.trajectory_id, one.hash))}
            records += [*fresh.values(), *parts]
            self._note_tools(home, span, seen)
        elif isinstance(seen, ToolCall):
            call_id = self._asked.get((home.trajectory_id, seen.call_id or "")) or family.call_before(span)
            records.append(observation_of(span, seen, home, self._run, agent, call_id))
        check_storable(records, f"span {span.span_id}")
        return records

    def _note_tools(self, home: Home, span: SpanReceived, call: ModelCall) -> None:
        for action in call.actions or ():
            asked = (action.message or {}).get("tool_calls")
            for tool in cast("list[JsonObject]", asked) if isinstance(asked, list) else ():
                self._asked.set((home.trajectory_id, str(tool.get("id"))), call_id_of(span))

    def _remember(self, records: Iterable[LogRecord]) -> None:
        for record in records:
            if isinstance(record, Content):
                self._stored.set((record.trajectory_id, record.hash), value=True)
            elif isinstance(record, AttemptStarted):
                self._begun.set(record.trajectory_id, record.started_at)


class _Family:
    """Spans of one trajectory that came together, and what they have to do with one another."""

    def __init__(self, spans: Sequence[SpanReceived]) -> None:
        self._spans = {span.span_id: span for span in spans}
        self.seen: dict[str, Seen | None] = {span.span_id: see(span) for span in spans}

    def agent_of(self, span: SpanReceived) -> str | None:
        """Name the agent that the span itself, or the nearest one above it, tells of."""
        above: SpanReceived | None = span
        for _ in self._spans:  # at most so many: parents that form a ring lead nowhere
            if above is None:
                return None
            seen = self.seen[above.span_id]
            if name := seen.name if isinstance(seen, AgentRun) else text_of(above.attributes, names.AGENT):
                return name
            above = self._spans.get(above.parent_id or "")
        return None

    def call_before(self, span: SpanReceived) -> str | None:
        """Name the model call that ended last before the span began."""
        calls = [one for one in self._spans.values() if isinstance(self.seen[one.span_id], ModelCall)]
        before = [one for one in calls if one.ended_at <= span.began_at]
        return call_id_of(max(before, key=lambda one: one.ended_at)) if before else None


def _check(span: SpanReceived) -> None:
    if not _IDS.fullmatch(f"{span.trace_id}-{span.span_id}-{span.parent_id or span.span_id}"):
        raise BadInputError(
            f"span {span.span_id!r} of trace {span.trace_id!r}: expected hexadecimal ids of 8 and 16 bytes that are not"
            " all zero, found others; check the exporter"
        )
    if not (is_believable(span.began_at) and is_believable(span.ended_at)):
        raise BadInputError(
            f"span {span.span_id!r}: expected times between 1970 and 3000, found {span.began_at:g} and"
            f" {span.ended_at:g} s; check the exporter's clock"
        )
