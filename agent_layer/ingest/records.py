"""This file holds how a span becomes records: a model call two parts of a step, a tool an observation. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from agent_layer import otel_names as names
from agent_layer.ingest.grouping import Home
from agent_layer.ingest.spans import ModelCall, SpanReceived, ToolCall, text_of
from agent_layer.schema import (
    AttemptStarted,
    Content,
    Observation,
    Outcome,
    StepPart,
    StepState,
    StepStatus,
    content_hash,
    split_trajectory_id,
)
from agent_layer.schema.wire import TraceContext

_NO_NAME = re.compile(r"[^A-Za-z0-9._:~-]+")


def call_id_of(span: SpanReceived) -> str:
    """Name the call: as whoever announced it did, else by the span, so that the same span is the same call."""
    return text_of(span.attributes, names.CALL) or span.span_id


def parts_of(
    span: SpanReceived, call: ModelCall, home: Home, run: str, agent: str | None
) -> tuple[list[Content], list[StepPart]]:
    """Give a call's start and end, and the contents that they refer to."""
    contents = [_content(home, message) for message in call.messages or ()]
    tools = _content(home, call.tools) if call.tools else None
    known = StepPart(
        trajectory_id=home.trajectory_id,
        call_id=call_id_of(span),
        run=run,
        source="otel",
        phase="start",
        at=span.began_at,
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_id,
        capture_level="text",
    )
    end = msgspec.structs.replace(
        known,
        phase="end",
        at=span.ended_at,
        actions=call.actions,
        status=_status_of(span),
        error=_error_of(span),
        usage=call.usage,
        findings=[] if call.messages and (call.actions or span.is_error) else ["otel_no_contents"],
    )
    start = msgspec.structs.replace(
        known,
        agent=agent,
        role=_role_of(span.attributes),
        conversation=text_of(span.attributes, names.CONVERSATION),
        state=StepState(
            messages=[content.hash for content in contents] if call.messages else None, tools=tools and tools.hash
        ),
        sampling_asked=call.sampling or None,
        model=call.model,
    )
    return [*contents, *([tools] if tools else [])], [start, end]


def observation_of(
    span: SpanReceived, tool: ToolCall, home: Home, run: str, agent: str | None, call_id: str | None
) -> Observation:
    """Give what a tool answered to the call that asked for it."""
    return Observation(
        trajectory_id=home.trajectory_id,
        observation_id=text_of(span.attributes, names.OBSERVATION) or span.span_id,
        run=run,
        name=tool.name,
        at=span.ended_at,
        call_id=text_of(span.attributes, names.CALL) or call_id,
        agent=agent,
        arguments=tool.arguments,
        output=tool.output if tool.output is not None else _error_of(span),
        status="error" if span.is_error else "ok",
        duration_seconds=span.ended_at - span.began_at,
    )


def start_of(home: Home, spans: Sequence[SpanReceived], run: str) -> AttemptStarted:
    """Begin a trajectory that nobody else has begun, when the earliest of its spans did."""
    first = min(spans, key=lambda span: span.began_at)
    rollout_id, attempt = split_trajectory_id(home.trajectory_id)
    return AttemptStarted(
        trajectory_id=home.trajectory_id,
        rollout_id=rollout_id,
        attempt=attempt,
        run=run,
        task_id=_name_in(text_of(first.attributes, names.TASK) or text_of(first.resource, "service.name")),
        task_type=_name_in(text_of(first.attributes, names.TASK_TYPE)),
        started_at=first.began_at,
        trace=TraceContext(trace_id=first.trace_id, span_id=first.parent_id, state=first.state),
    )


def outcome_of(root: SpanReceived, home: Home, run: str) -> Outcome:
    """End a trajectory that is one trace with the root of that."""
    return Outcome(
        trajectory_id=home.trajectory_id,
        run=run,
        status="failed" if root.is_error else "completed",
        cause="user" if root.is_error else None,
        ended_at=root.ended_at,
        error=_error_of(root),
    )


def _name_in(text: str | None) -> str:
    """Give the text as a name that can be asked for, whatever services are called."""
    return _NO_NAME.sub("-", text or "").lstrip("._:~-")[:128] or "otel"


def _content(home: Home, value: object) -> Content:
    body = msgspec.json.encode(value)
    return Content(trajectory_id=home.trajectory_id, hash=content_hash(body), body=body)


def _role_of(attributes: Mapping[str, object]) -> Literal["policy", "aux"] | None:
    told = text_of(attributes, names.ROLE)
    return told if told == "policy" or told == "aux" else None  # noqa: PLR1714 - narrows the type


def _status_of(span: SpanReceived) -> StepStatus:
    if span.attributes.get(names.ERROR_TYPE) == "aborted":
        return "aborted"
    return "error" if span.is_error else "ok"


def _error_of(span: SpanReceived) -> str | None:
    return (span.error or text_of(span.attributes, names.ERROR_TYPE) or "error") if span.is_error else None
