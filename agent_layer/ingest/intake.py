"""Intake of spans: assigns each span of a request to its trajectory and turns it into records.

The records are in the log before the client gets its answer. Sending a request again changes nothing.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from agent_layer import otel_names as names
from agent_layer.errors import BadInputError
from agent_layer.ingest.conventions.recognition import interpret_span
from agent_layer.ingest.grouping import BoundedMap, SpanTarget, TargetIndex
from agent_layer.ingest.records import make_observation, make_outcome, make_start, make_step_parts, span_call_id
from agent_layer.ingest.spans import AgentRun, ModelCall, ReceivedSpan, SpanMeaning, ToolCall, first_text
from agent_layer.ingest.times import is_believable
from agent_layer.schema import AttemptStarted, Content, LogRecord, as_json_objects, check_storable

_IDS = re.compile(r"(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{16}")


_MAX_EARLY_ROOTS = 10_000
"""Most traces have no call of a model: all that their senders do."""


class Log(Protocol):
    """Destination of records; the recorder implements it."""

    def append(self, *records: LogRecord) -> str:
        """Append records; they survive the death of this process."""
        ...


class IntakeResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a request."""

    num_spans: int
    """All spans of the request; spans that describe no model call are skipped and count as accepted."""
    num_rejected: int
    reason: str
    """Why the first one was rejected; empty if all were accepted."""


class Intake:
    """Processes requests, one at a time."""

    def __init__(self, log: Log, run: str) -> None:
        self._log = log
        self._run = run
        self._target_index = TargetIndex()
        self._begun: BoundedMap[str, float] = BoundedMap()
        """Start times of trajectories created from spans, by id."""
        self._stored: BoundedMap[tuple[str, str], bool] = BoundedMap()
        """(trajectory, hash) of contents already in the log."""
        self._answers_by_call: BoundedMap[tuple[str, str], str] = BoundedMap()
        """Call that requested a tool, by (trajectory, tool call id)."""
        self._early_roots: BoundedMap[str, ReceivedSpan] = BoundedMap(_MAX_EARLY_ROOTS)
        """Root spans that came before any call of their trajectory, by its id."""

    def add_spans(self, spans: Sequence[ReceivedSpan], named: str | None = None) -> IntakeResult:
        """Append the spans to the log.

        Args:
            spans: of one request.
            named: default trajectory of the spans.

        Raises: BackPressureError: the log is full; nothing was recorded.
        """
        faults: list[str] = []
        sound = list(self._check_spans(spans, named, faults))
        targets: defaultdict[SpanTarget, list[ReceivedSpan]] = defaultdict(list)
        for span in sound:
            targets[self._target_index.find_target(span, named)].append(span)
        records = [record for target, ours in targets.items() for record in self._records(target, ours, faults)]
        if records:
            self._log.append(*records)
            for record in records:
                if isinstance(record, Content):
                    self._stored.set((record.trajectory_id, record.hash), value=True)
                elif isinstance(record, AttemptStarted):
                    self._begun.set(record.trajectory_id, record.started_at)
        return IntakeResult(num_spans=len(spans), num_rejected=len(faults), reason=faults[0] if faults else "")

    def _check_spans(
        self, spans: Iterable[ReceivedSpan], named: str | None, faults: list[str]
    ) -> Iterator[ReceivedSpan]:
        for span in spans:
            try:
                _check(span)
                self._target_index.add_span(span, named)
            except BadInputError as error:
                faults.append(str(error))
            else:
                yield span

    def _records(self, target: SpanTarget, spans: Sequence[ReceivedSpan], faults: list[str]) -> Iterator[LogRecord]:
        """Return the records of one trajectory's spans; none if no span describes a model call or tool."""
        related = _RelatedSpans(spans)
        calls = [span for span in spans if isinstance(related.seen[span.span_id], ModelCall | ToolCall)]
        begun_at = self._begun.get(target.trajectory_id)
        roots = [span for span in spans if span.parent_id is None] if target.ends_with_root else []
        if not calls and begun_at is None:
            for root in roots:
                self._early_roots.set(target.trajectory_id, msgspec.structs.replace(root, events=[]))
            return
        if begun_at is None and (early := self._early_roots.get(target.trajectory_id)) is not None:
            spans, roots = [*spans, early], [*roots, early]
        if not target.is_named and (begun_at is None or min(span.began_at for span in spans) < begun_at):
            yield make_start(target, spans, self._run)
        for span in sorted(calls, key=lambda span: span.began_at):
            try:
                yield from self._span_records(target, span, related)
            except (BadInputError, RecursionError) as error:  # RecursionError: nested too deeply for a record
                faults.append(str(error))
        yield from (make_outcome(root, target, self._run) for root in roots)

    def _span_records(self, target: SpanTarget, span: ReceivedSpan, related: "_RelatedSpans") -> list[LogRecord]:
        seen, agent = related.seen[span.span_id], related.find_agent(span)
        records: list[LogRecord] = []
        if isinstance(seen, ModelCall):
            contents, parts = make_step_parts(span, seen, target, self._run, agent)
            fresh = {one.hash: one for one in contents if not self._stored.get((target.trajectory_id, one.hash))}
            records += [*fresh.values(), *parts]
            for action in seen.actions or ():
                for tool in as_json_objects((action.message or {}).get("tool_calls")):
                    self._answers_by_call.set((target.trajectory_id, str(tool.get("id"))), span_call_id(span))
        elif isinstance(seen, ToolCall):
            call_id = self._answers_by_call.get((target.trajectory_id, seen.call_id or "")) or related.find_call_before(
                span
            )
            records.append(make_observation(span, seen, target, self._run, agent, call_id))
        check_storable(records, f"span {span.span_id}")
        return records


class _RelatedSpans:
    """Spans of one trajectory from one request, and their relations."""

    def __init__(self, spans: Sequence[ReceivedSpan]) -> None:
        self._spans = {span.span_id: span for span in spans}
        self.seen: dict[str, SpanMeaning | None] = {span.span_id: interpret_span(span) for span in spans}

    def find_agent(self, span: ReceivedSpan) -> str | None:
        """Return the agent that the span or its nearest ancestor names."""
        above: ReceivedSpan | None = span
        for _ in self._spans:  # at most this many steps up: parents may form a cycle
            if above is None:
                return None
            seen = self.seen[above.span_id]
            if name := seen.name if isinstance(seen, AgentRun) else first_text(above.attributes, names.AGENT):
                return name
            above = self._spans.get(above.parent_id or "")
        return None

    def find_call_before(self, span: ReceivedSpan) -> str | None:
        """Return the model call that ended last before the span began."""
        calls = [one for one in self._spans.values() if isinstance(self.seen[one.span_id], ModelCall)]
        before = [one for one in calls if one.ended_at <= span.began_at]
        return span_call_id(max(before, key=lambda one: one.ended_at)) if before else None


def _check(span: ReceivedSpan) -> None:  # kept: what an exporter must send, with its errors
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
