"""Attaches a failure of ours to the agent's exception as a note, so that the agent's exception propagates."""

from collections.abc import Generator
from contextlib import contextmanager

from agent_layer.errors import AgentLayerError


@contextmanager
def add_failure_note(error: BaseException, subject: str) -> Generator[None]:
    """Context manager around work that an error makes necessary. If the work fails too, the error gets a note.

    Args:
        error: the error that propagates.
        subject: what failed, such as ``"rollout r-1 could not be ended"``.
    """
    try:
        yield
    except AgentLayerError as failure:
        error.add_note(f"{subject} either: {failure}")
