"""This file holds what records are stamped with: times and ids. Tests give them others, which can be foretold."""

import time
from typing import Protocol

from agent_layer.schema.ids import new_id
from agent_layer.schema.trace import TraceContext
from tracer.traceparent import new_span_id, new_trace

__all__ = ["SYSTEM", "Stamps"]


class Stamps(Protocol):
    """Gives times and ids."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        ...

    def ticks(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    def new_id(self) -> str:
        """Mint an id that sorts by the time of its making."""
        ...

    def new_span_id(self) -> str:
        """Mint a span id of OpenTelemetry's."""
        ...

    def new_trace(self) -> TraceContext:
        """Give the place in OpenTelemetry's terms of what begins here."""
        ...


class _SystemStamps:
    """The machine's clock and randomness."""

    now = staticmethod(time.time)
    ticks = staticmethod(time.perf_counter)
    new_id = staticmethod(new_id)
    new_span_id = staticmethod(new_span_id)
    new_trace = staticmethod(new_trace)


SYSTEM: Stamps = _SystemStamps()
