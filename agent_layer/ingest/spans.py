"""This file holds spans as they were received, whatever encoding they came in."""

import msgspec

from agent_layer.schema.record import JsonObject

__all__ = ["SpanEvent", "SpanReceived"]


class SpanEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at one moment of a span."""

    name: str
    attributes: JsonObject


class SpanReceived(msgspec.Struct, frozen=True, kw_only=True):
    """One span. Times are seconds since the epoch."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits."""
    name: str
    began_at: float
    ended_at: float
    parent_id: str | None = None
    """None: it is a root."""
    state: str | None = None
    attributes: JsonObject = {}
    resource: JsonObject = {}
    """Attributes of whoever sent it, such as ``service.name``."""
    events: list[SpanEvent] = []
    is_error: bool = False
    error: str | None = None
    """What the status says of the error."""
