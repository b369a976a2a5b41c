"""Failures of ours, told without a stop of the agent: a note at its exception, or a sentence on stderr."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from agent_layer.errors import AgentLayerError

_WARNED: set[str] = set()
"""Subjects that stderr has shown a sentence about."""


def warn_once(subject: str, sentence: str) -> None:
    """Write a sentence to stderr, unless this process wrote one about this subject before."""
    if subject not in _WARNED:
        _WARNED.add(subject)
        sys.stderr.write(f"{subject}: {sentence}\n")


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
