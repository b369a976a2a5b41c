"""This file holds streams that are being read: what they said so far, until they end or are given up."""

from tracer.calls import Asked, Call
from tracer.integrations.dialects import Dialect

__all__ = ["Unfinished"]


class Unfinished:
    """A stream that is being read. One that is read no further when its rollout ends was given up."""

    def __init__(self, call: Call, dialect: Dialect, asked: Asked | None = None) -> None:
        self._call, self._dialect, self._asked = call, dialect, asked
        self._events: list[str] = []
        call.scope.rollout.unfinished[call.call_id] = self.end

    def see(self, event: str) -> None:
        """Keep the data of one event; the last one ends the stream."""
        if not event:
            return
        self._events.append(event)
        if self._dialect.is_last(event):
            self.end(is_whole=True)

    def end(self, *, is_whole: bool = False) -> None:
        """Record the answer; once only."""
        if self._call.scope.rollout.unfinished.pop(self._call.call_id, None) is not None:
            self._call.finish("hook", self._dialect.read_stream(self._events, is_whole=is_whole), self._asked)
