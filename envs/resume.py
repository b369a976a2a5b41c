"""Resumable agents: declared by an attribute of that name, paused by an exception."""

from typing import TypeVar

from agent_layer.errors import BadInputError

A = TypeVar("A")

_ATTRIBUTE = "resumable"


class PausedError(Exception):
    """The attempt pauses here: its state is saved, and another worker resumes it."""


def resumable(agent: A) -> A:
    """Declare that another worker can resume an agent: a coroutine that saves, or a compiled LangGraph graph.

    A coroutine calls ``await rollout.save(state)`` between its steps and begins with ``rollout.saved`` (None at first).
    A graph is compiled without a checkpointer: the worker saves its state after each superstep. Work after the last
    save is repeated, so tools with lasting effects must tolerate a second call.

    Raises: BadInputError: the object accepts no attribute; set ``resumable = True`` in its class.
    """
    try:
        setattr(agent, _ATTRIBUTE, True)
    except (AttributeError, TypeError, ValueError) as error:
        raise BadInputError(
            f"agent {agent!r}: cannot be declared resumable, {error}; set resumable = True in its class"
        ) from error
    return agent


def is_resumable(agent: object) -> bool:
    """Whether an agent is declared resumable."""
    return getattr(agent, _ATTRIBUTE, False) is True
