"""This file holds the conventions by which spans tell of model calls, the most particular first."""

from agent_layer.ingest import Seen, SpanReceived
from agent_layer.ingest.conventions import genai, openinference, openllmetry

__all__ = ["SESSIONS", "see"]

_READERS = (openinference.read, openllmetry.read, genai.read)

SESSIONS = (*openinference.SESSIONS, *openllmetry.SESSIONS, *genai.SESSIONS)
"""Attributes that name a longer conversation or run."""


def see(span: SpanReceived) -> Seen | None:
    """Say what a span tells of; None for spans of anything else, such as HTTP requests."""
    return next((seen for read in _READERS if (seen := read(span))), None)
