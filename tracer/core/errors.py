"""This file holds how an error of ours stands beside one of the agent's: as a note, so that the agent's goes on."""

from collections.abc import Generator
from contextlib import contextmanager

from agent_layer.errors import AgentLayerError


@contextmanager
def add_failure_note(error: BaseException, subject: str) -> Generator[None]:
    """Do what is due because of an error; should that fail too, the error says so in a note.

    Args:
        error: what goes on.
        subject: what is due, such as ``"rollout r-1 could not be ended"``.
    """
    try:
        yield
    except AgentLayerError as failure:
        error.add_note(f"{subject} either: {failure}")
