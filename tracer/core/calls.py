"""Model calls as this process sees them, and the records that it writes of them.

The outermost layer that sees a call mints its id and announces it. Layers farther in adopt it, so that all records
describe one step. A call is *routed* when the gateway sees it. The gateway records request and answer, and this process
adds the agent, node and state once the call has ended; a call that the gateway refused is no step. Any other call is
recorded here, at text level: its start before the request leaves, its end before the answer is returned.
"""

import os
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Literal, TypeAlias

import msgspec

from agent_layer.schema import (
    Action,
    JsonObject,
    PartSource,
    StepPart,
    StepState,
    StepStatus,
    TraceContext,
    Usage,
    safe_repr,
)
from tracer.core.clock import active_trace
from tracer.core.contents import ContentWriter
from tracer.core.errors import add_failure_note
from tracer.core.scope import Scope

Layer: TypeAlias = PartSource | Literal["broker"]
"""A broker is a hook in a library that itself uses the clients of others; parts of both are those of hooks."""

_DEPTH: dict[Layer, int] = {"decorator": 0, "handler": 1, "broker": 2, "hook": 3}


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a call asks of the model."""

    messages: list[object] | None = None
    add_messages: Callable[[ContentWriter], list[str]] | None = None
    """Returns content hashes instead of messages, for a layer that knows which messages are recorded already."""
    tools: object = None
    sampling: JsonObject | None = None
    model: str | None = None
    findings: list[str] = []
    """What the record of it lacks."""


class CallAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the model answered."""

    actions: list[Action] | None = None
    """[num_choices]; None when nothing came."""
    model: str | None = None
    usage: Usage | None = None
    status: StepStatus = "ok"
    error: str | None = None
    findings: list[str] = []


def failed_answer(error: BaseException) -> CallAnswer:
    """Return the answer of a call that failed or that its caller abandoned."""
    is_given_up = not isinstance(error, Exception)
    return CallAnswer(status="aborted" if is_given_up else "error", error=safe_repr(error)[:2000])


class Call(msgspec.Struct, kw_only=True, eq=False):
    """One model call, from before it leaves until its answer is here."""

    scope: Scope
    source: Layer
    """Innermost layer that sees the call so far; it records the end."""
    call_id: str = ""
    span_id: str = ""
    around: TraceContext | None = msgspec.field(default_factory=active_trace)
    """OpenTelemetry's span in which the call is made."""
    parent_call: str | None = None
    """Causal parent; None: the latest call of the same lineage."""
    started_at: float = 0.0
    is_open: bool = True
    is_request_recorded: bool = False
    """Whether the start contains the request."""

    def __post_init__(self) -> None:
        clock = self.scope.rollout.clock
        self.call_id, self.span_id, self.started_at = clock.new_id(), clock.new_span_id(), clock.now()
        self.parent_call = self.parent_call or self.scope.lineage.latest_call

    @property
    def is_routed(self) -> bool:
        """Whether this call goes to the rollout's gateway; those of aux agents, such as judges, never do."""
        return self.scope.rollout.base_url is not None and self.scope.role != "aux"

    def begin(self, request: CallRequest | None = None) -> None:
        """Record the start, unless the gateway will."""
        if not self.is_routed:
            self.record_start(request)

    def record_start(
        self, request: CallRequest | None = None, *, capture_level: Literal["text"] | None = "text"
    ) -> None:
        """Record the caller and the request. ``capture_level=None``: another layer knows the level."""
        scope, rollout = self.scope, self.scope.rollout
        contents = ContentWriter(rollout)
        self.is_request_recorded = request is not None
        contents.write(
            StepPart(
                trajectory_id=rollout.trajectory_id,
                call_id=self.call_id,
                run=rollout.run,
                source=self._part_source,
                phase="start",
                at=self.started_at,
                agent=scope.agent,
                agent_path=list(scope.agents) if len(scope.agents) > 1 else None,
                role=scope.role,
                conversation=scope.conversation,
                node=scope.node,
                graph=scope.graph,
                parent_call=self.parent_call,
                trace_id=rollout.trace_id,
                span_id=self.span_id,
                parent_span_id=self._parent_span_id,
                state=StepState(
                    messages=request and _add_messages(contents, request),
                    tools=contents.add(request.tools) if request and request.tools else None,
                    framework=scope.read_state(contents) if scope.read_state else None,
                    environment=scope.lineage.environment,
                ),
                sampling_asked=request and request.sampling,
                model=request and request.model,
                capture_level=capture_level,
                findings=request.findings if request else [],
            )
        )

    def record_end(self, answer: CallAnswer, request: CallRequest | None = None) -> None:
        """Record the answer, and the request unless the start contains it."""
        rollout = self.scope.rollout
        contents = ContentWriter(rollout)
        request = None if self.is_request_recorded else request
        contents.write(
            StepPart(
                trajectory_id=rollout.trajectory_id,
                call_id=self.call_id,
                run=rollout.run,
                source=self._part_source,
                phase="end",
                at=rollout.clock.now(),
                state=request
                and StepState(
                    messages=_add_messages(contents, request),
                    tools=contents.add(request.tools) if request.tools else None,
                ),
                sampling_asked=request and request.sampling,
                actions=answer.actions,
                model=answer.model or (request and request.model),
                capture_level="text",
                status=answer.status,
                error=answer.error,
                usage=answer.usage,
                findings=[*(request.findings if request else []), *answer.findings],
            )
        )

    def finish(self, source: Layer, answer: CallAnswer, request: CallRequest | None = None) -> None:
        """End the call as this layer saw it, unless a layer farther in or the gateway has recorded the end."""
        if self.source == source:
            if self.is_routed:
                self.record_start(request)
            self.record_end(answer, request)
        if self.is_open:
            self.leave()

    def fail(self, source: Layer, error: BaseException) -> None:
        """End a call that failed, while its error propagates, unless its answer is recorded already.

        The gateway records the end of routed calls; the caller that is recorded here counts where it did.
        """
        if not self.is_open:
            return
        with add_failure_note(error, "the model call that failed could not be recorded"):
            if self.is_routed:
                self.is_open = False
                self.record_start(capture_level=None)
            else:
                self.finish(source, failed_answer(error))

    def leave(self) -> None:
        """Make this call the parent of the calls that follow in its lineage."""
        self.is_open = False
        self.scope.lineage.latest_call = self.call_id

    @property
    def _parent_span_id(self) -> str | None:
        """Active span of the agent around the call; None when that is the span of the attempt."""
        span_id = self.around and self.around.span_id
        return None if span_id == self.scope.rollout.trace.span_id else span_id

    @property
    def _part_source(self) -> PartSource:
        return "hook" if self.source == "broker" else self.source


def _add_messages(contents: ContentWriter, request: CallRequest) -> list[str] | None:
    if request.add_messages is not None:
        return request.add_messages(contents)
    return None if request.messages is None else [contents.add(message) for message in request.messages]


_ANNOUNCED: ContextVar[tuple[Call, ...]] = ContextVar("tracer_announced", default=())
os.register_at_fork(after_in_child=partial(_ANNOUNCED.set, ()))
"""A forked child does not adopt the call during which it was forked."""


def announce_call(call: Call) -> Call:
    """Offer the call to layers farther in, in this context and in contexts started from it."""
    _ANNOUNCED.set((*(other for other in _ANNOUNCED.get() if other.is_open and other is not call), call))
    return call


def is_inside_call(scope: Scope, source: Layer) -> bool:
    """Whether this code runs inside a call of the scope's rollout whose innermost layer so far is ``source``."""
    return any(
        call.is_open and call.source == source and call.scope.rollout is scope.rollout for call in _ANNOUNCED.get()
    )


def adopt_call(scope: Scope, source: Layer) -> Call:
    """Return the oldest announced call that no layer has adopted yet; a new call when there is none."""
    for call in _ANNOUNCED.get():
        if call.is_open and call.scope.rollout is scope.rollout and _DEPTH[call.source] < _DEPTH[source]:
            call.source, call.scope = source, scope
            return call
    return Call(scope=scope, source=source)
