"""Trajectory of a span: the one it names, else its session's, else its trace's."""

from collections import OrderedDict
from typing import Generic, TypeVar

import msgspec

from agent_layer import otel_names as names
from agent_layer.errors import BadInputError
from agent_layer.ingest.conventions.recognition import SESSIONS
from agent_layer.ingest.spans import ReceivedSpan, first_text
from agent_layer.schema import check_name, content_hash, make_trajectory_id, split_trajectory_id

K = TypeVar("K")
V = TypeVar("V")

_MAX_REMEMBERED = 100_000


class SpanTarget(msgspec.Struct, frozen=True):
    """Trajectory of a group of spans."""

    trajectory_id: str
    is_named: bool
    """Another recorder opened it and decides its outcome; False: it consists of these spans alone."""
    ends_with_root: bool = False
    """It is one trace and ends with the trace's root span."""


class BoundedMap(Generic[K, V]):
    """The newest ``limit`` keys and their values."""

    def __init__(self, limit: int = _MAX_REMEMBERED) -> None:
        self._values: OrderedDict[K, V] = OrderedDict()
        self._limit = limit

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if unknown."""
        return self._values.get(key)

    def set(self, key: K, value: V) -> None:
        """Set a value and evict the oldest."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._limit:
            self._values.popitem(last=False)


class TargetIndex:
    """Assigns spans to trajectories. A span that names a trajectory assigns its whole trace."""

    def __init__(self) -> None:
        self._targets: BoundedMap[str, SpanTarget] = BoundedMap()

    def add_span(self, span: ReceivedSpan, named: str | None = None) -> None:
        """Record the trajectory that a span names for its trace.

        Args:
            span: any span, also one that describes no model call.
            named: the request's default trajectory.

        Raises: BadInputError: the span names an invalid trajectory.
        """
        target = _stated_target(span, named)
        known = self._targets.get(span.trace_id)
        if target and not (known and known.is_named):
            self._targets.set(span.trace_id, target)

    def find_target(self, span: ReceivedSpan, named: str | None = None) -> SpanTarget:
        """Return the trajectory of a span that was recorded before."""
        own = _stated_target(span, named)
        if own and own.is_named:
            return own
        own_trace = SpanTarget(_own_id("trace", span.trace_id), is_named=False, ends_with_root=True)
        return self._targets.get(span.trace_id) or own or own_trace


def _stated_target(span: ReceivedSpan, named: str | None) -> SpanTarget | None:
    """Return the trajectory that the span, the request or the span's session names; None: none does."""
    stated = first_text(span.attributes, names.TRAJECTORY, names.ROLLOUT)
    stated = stated or first_text(span.resource, names.TRAJECTORY, names.ROLLOUT) or named
    if stated:
        split_trajectory_id(check_name(stated, "trajectory"))
        return SpanTarget(stated, is_named=True)
    session = first_text(span.attributes, *SESSIONS) or first_text(span.resource, *SESSIONS)
    return SpanTarget(_own_id("session", session), is_named=False) if session else None


def _own_id(kind: str, name: str) -> str:
    """Return the id of a trajectory; the same name yields the same id."""
    try:
        rollout_id = check_name(f"{kind}.{name}", kind)
    except BadInputError:
        rollout_id = f"{kind}.{content_hash(name.encode())}"
    return make_trajectory_id(rollout_id, 0)
