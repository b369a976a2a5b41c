"""This file holds to which trajectory a span belongs: one that it names, else its session's, else its trace's own."""

from collections import OrderedDict
from typing import Generic, TypeVar

import msgspec

from agent_layer import otel_names as names
from agent_layer.errors import BadInputError
from agent_layer.ingest.conventions import SESSIONS
from agent_layer.ingest.spans import SpanReceived, text_of
from agent_layer.schema import check_name, content_hash, split_trajectory_id, trajectory_id_of

K = TypeVar("K")
V = TypeVar("V")

_MOST_REMEMBERED = 100_000


class Home(msgspec.Struct, frozen=True):
    """The trajectory that spans belong to."""

    trajectory_id: str
    is_named: bool
    """Somebody else opened it, and says how it ends; else it is made of these spans alone."""
    ends_with_root: bool = False
    """It is one trace, so it ends when the root of that does."""


class Recent(Generic[K, V]):
    """What was learnt of the newest so many keys."""

    def __init__(self, limit: int = _MOST_REMEMBERED) -> None:
        self._values: OrderedDict[K, V] = OrderedDict()
        self._limit = limit

    def get(self, key: K) -> V | None:
        """Give what is known of a key."""
        return self._values.get(key)

    def set(self, key: K, value: V) -> None:
        """Learn it, and forget the oldest."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._limit:
            self._values.popitem(last=False)


class Grouping:
    """Finds homes. One span that says where its trace belongs says it for all others of that trace."""

    def __init__(self) -> None:
        self._homes: Recent[str, Home] = Recent()

    def learn(self, span: SpanReceived, named: str | None = None) -> None:
        """Note what a span says of its trace.

        Args:
            span: any, also one that tells of no model.
            named: trajectory that the request as a whole names.

        Raises: BadInputError: the span names something that is no trajectory.
        """
        home = _home_said(span, named)
        known = self._homes.get(span.trace_id)
        if home and not (known and known.is_named):
            self._homes.set(span.trace_id, home)

    def home_of(self, span: SpanReceived, named: str | None = None) -> Home:
        """Give the home of a span that was learnt from."""
        own = _home_said(span, named)
        if own and own.is_named:
            return own
        own_trace = Home(_own_id("trace", span.trace_id), is_named=False, ends_with_root=True)
        return self._homes.get(span.trace_id) or own or own_trace


def _home_said(span: SpanReceived, named: str | None) -> Home | None:
    """What the span itself says, or else its request."""
    told = text_of(span.attributes, names.TRAJECTORY, names.ROLLOUT)
    told = told or text_of(span.resource, names.TRAJECTORY, names.ROLLOUT) or named
    if told:
        split_trajectory_id(check_name(told, "trajectory"))
        return Home(told, is_named=True)
    session = text_of(span.attributes, *SESSIONS) or text_of(span.resource, *SESSIONS)
    return Home(_own_id("session", session), is_named=False) if session else None


def _own_id(kind: str, name: str) -> str:
    """Make the id of a trajectory of which the same name gives the same."""
    try:
        rollout_id = check_name(f"{kind}.{name}", kind)
    except BadInputError:
        rollout_id = f"{kind}.{content_hash(name.encode())}"
    return trajectory_id_of(rollout_id, 0)
