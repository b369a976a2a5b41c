"""Records of a span: a model call becomes the two parts of a step, a tool call an observation. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from agent_layer import otel_names as names
from agent_layer.ingest.grouping import SpanTarget
from agent_layer.ingest.spans import ModelCall, ReceivedSpan, ToolCall, first_text
from agent_layer.schema import (
    AttemptStarted,
    Content,
    Observation,
    Outcome,
    StepPart,
    StepState,
    StepStatus,
    TraceContext,
    content_hash,
    split_trajectory_id,
)

_NO_NAME = re.compile(r"[^A-Za-z0-9._:~-]+")


def span_call_id(span: ReceivedSpan) -> str:
    """Return the call id: the announced one, else the span's id, so that the same span is always the same call."""
    return first_text(span.attributes, names.CALL) or span.span_id


def make_step_parts(
    span: ReceivedSpan, call: ModelCall, target: SpanTarget, run: str, agent: str | None
) -> tuple[list[Content], list[StepPart]]:
    """Return a call's start, its end, and the contents they reference."""
    contents = [_content(target, message) for message in call.messages or ()]
    tools = _content(target, call.tools) if call.tools else None
    known = StepPart(
        trajectory_id=target.trajectory_id,
        call_id=span_call_id(span),
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
        status=_status(span),
        error=_error_text(span),
        usage=call.usage,
        findings=[] if call.messages and (call.actions or span.is_error) else ["otel_no_contents"],
    )
    start = msgspec.structs.replace(
        known,
        agent=agent,
        role=_role(span.attributes),
        conversation=first_text(span.attributes, names.CONVERSATION),
        state=StepState(
            messages=[content.hash for content in contents] if call.messages else None, tools=tools and tools.hash
        ),
        sampling_asked=call.sampling or None,
        model=call.model,
    )
    return [*contents, *([tools] if tools else [])], [start, end]


def make_observation(
    span: ReceivedSpan, tool: ToolCall, target: SpanTarget, run: str, agent: str | None, call_id: str | None
) -> Observation:
    """Return the tool's output as an observation of the call that requested it."""
    return Observation(
        trajectory_id=target.trajectory_id,
        observation_id=first_text(span.attributes, names.OBSERVATION) or span.span_id,
        run=run,
        name=tool.name,
        at=span.ended_at,
        call_id=first_text(span.attributes, names.CALL) or call_id,
        agent=agent,
        arguments=tool.arguments,
        output=tool.output if tool.output is not None else _error_text(span),
        status="error" if span.is_error else "ok",
        duration_seconds=span.ended_at - span.began_at,
    )


def make_start(target: SpanTarget, spans: Sequence[ReceivedSpan], run: str) -> AttemptStarted:
    """Return the start of a trajectory that only these spans describe, at the earliest span's time."""
    first = min(spans, key=lambda span: span.began_at)
    rollout_id, attempt = split_trajectory_id(target.trajectory_id)
    return AttemptStarted(
        trajectory_id=target.trajectory_id,
        rollout_id=rollout_id,
        attempt=attempt,
        run=run,
        task_id=_searchable_name(
            first_text(first.attributes, names.TASK) or first_text(first.resource, "service.name")
        ),
        task_type=_searchable_name(first_text(first.attributes, names.TASK_TYPE)),
        started_at=first.began_at,
        trace=TraceContext(trace_id=first.trace_id, span_id=first.parent_id, state=first.state),
    )


def make_outcome(root: ReceivedSpan, target: SpanTarget, run: str) -> Outcome:
    """Return the end of a one-trace trajectory, at its root span's end."""
    return Outcome(
        trajectory_id=target.trajectory_id,
        run=run,
        status="failed" if root.is_error else "completed",
        cause="user" if root.is_error else None,
        ended_at=root.ended_at,
        error=_error_text(root),
    )


def _searchable_name(text: str | None) -> str:
    """Return the text as a valid, searchable name."""
    return _NO_NAME.sub("-", text or "").lstrip("._:~-")[:128] or "otel"


def _content(target: SpanTarget, value: object) -> Content:
    body = msgspec.json.encode(value)
    return Content(trajectory_id=target.trajectory_id, hash=content_hash(body), body=body)


def _role(attributes: Mapping[str, object]) -> Literal["policy", "aux"] | None:
    role = first_text(attributes, names.ROLE)
    return role if role == "policy" or role == "aux" else None  # noqa: PLR1714 - narrows the type


def _status(span: ReceivedSpan) -> StepStatus:
    if span.attributes.get(names.ERROR_TYPE) == "aborted":
        return "aborted"
    return "error" if span.is_error else "ok"


def _error_text(span: ReceivedSpan) -> str | None:
    return (span.error or first_text(span.attributes, names.ERROR_TYPE) or "error") if span.is_error else None
