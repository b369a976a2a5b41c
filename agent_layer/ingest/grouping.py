"""This file holds to which trajectory a span belongs: one that it names, else its session's, else its trace's own."""

from collections import OrderedDict
from typing import Generic, TypeVar

import msgspec

from agent_layer import otel_names as names
from agent_layer.errors import BadInputError
from agent_layer.ingest.conventions import SESSIONS
from agent_layer.ingest.spans import ReceivedSpan, first_text
from agent_layer.schema import check_name, content_hash, make_trajectory_id, split_trajectory_id

K = TypeVar("K")
V = TypeVar("V")

_MOST_REMEMBERED = 100_000


class SpanTarget(msgspec.Struct, frozen=True):
    """The trajectory that spans belong to."""

    trajectory_id: str
    is_named: bool
    """Somebody else opened it, and says how it ends; else it is made of these spans alone."""
    ends_with_root: bool = False
    """It is one trace, so it ends when the root of that does."""


class BoundedMap(Generic[K, V]):
    """What was learnt of the newest so many keys."""

    def __init__(self, limit: int = _MOST_REMEMBERED) -> None:
        self._values: OrderedDict[K, V] = OrderedDict()
        self._limit = limit

    def get(self, key: K) -> V | None:
        """Return what is known of a key."""
        return self._values.get(key)

    def set(self, key: K, value: V) -> None:
        """Learn it, and forget the oldest."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._limit:
            self._values.popitem(last=False)


class TargetIndex:
    """Finds homes. One span that says where its trace belongs says it for all others of that trace."""

    def __init__(self) -> None:
        self._targets: BoundedMap[str, SpanTarget] = BoundedMap()

    def add_span(self, span: ReceivedSpan, named: str | None = None) -> None:
        """Note what a span says of its trace.

        Args:
            span: any, also one that tells of no model.
            named: trajectory that the request as a whole names.

        Raises: BadInputError: the span names something that is no trajectory.
        """
        target = _stated_target(span, named)
        known = self._targets.get(span.trace_id)
        if target and not (known and known.is_named):
            self._targets.set(span.trace_id, target)

    def find_target(self, span: ReceivedSpan, named: str | None = None) -> SpanTarget:
        """Return the home of a span that was learnt from."""
        own = _stated_target(span, named)
        if own and own.is_named:
            return own
        own_trace = SpanTarget(_own_id("trace", span.trace_id), is_named=False, ends_with_root=True)
        return self._targets.get(span.trace_id) or own or own_trace


def _stated_target(span: ReceivedSpan, named: str | None) -> SpanTarget | None:
    """What the span itself says, or else its request."""
    told = first_text(span.attributes, names.TRAJECTORY, names.ROLLOUT)
    told = told or first_text(span.resource, names.TRAJECTORY, names.ROLLOUT) or named
    if told:
        split_trajectory_id(check_name(told, "trajectory"))
        return SpanTarget(told, is_named=True)
    session = first_text(span.attributes, *SESSIONS) or first_text(span.resource, *SESSIONS)
    return SpanTarget(_own_id("session", session), is_named=False) if session else None


def _own_id(kind: str, name: str) -> str:
    """Make the id of a trajectory of which the same name gives the same."""
    try:
        rollout_id = check_name(f"{kind}.{name}", kind)
    except BadInputError:
        rollout_id = f"{kind}.{content_hash(name.encode())}"
    return make_trajectory_id(rollout_id, 0)
