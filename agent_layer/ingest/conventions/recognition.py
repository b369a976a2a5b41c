"""Order of the conventions that describe model calls, the most specific first."""

from agent_layer.ingest.conventions import genai, openinference, openllmetry
from agent_layer.ingest.spans import ReceivedSpan, SpanMeaning

__all__ = ["SESSIONS", "interpret_span"]

_READERS = (openinference.read, openllmetry.read, genai.read)

SESSIONS = (*openinference.SESSIONS, *openllmetry.SESSIONS, *genai.SESSIONS)
"""Attributes that name a longer conversation or run."""


def interpret_span(span: ReceivedSpan) -> SpanMeaning | None:
    """Interpret a span; None for spans of anything else, such as HTTP requests."""
    return next((seen for read in _READERS if (seen := read(span))), None)
