"""This file holds how an agent is declared resumable: an attribute of that name, which ``resumable`` sets."""

from typing import TypeVar

from agent_layer.errors import BadInputError

A = TypeVar("A")

_DECLARED = "resumable"


def resumable(agent: A) -> A:
    """Declare that an agent can go on elsewhere: a coroutine that saves, or a compiled LangGraph graph.

    A coroutine calls ``await rollout.save(state)`` between its steps and begins with ``rollout.saved`` (None at first).
    A graph is compiled without a checkpointer: the worker saves its state after each superstep. What is done after the
    last save is done again, so tools with lasting effects must stand being called twice.

    Raises: BadInputError: it takes no attribute; set ``resumable = True`` in its class.
    """
    try:
        setattr(agent, _DECLARED, True)
    except (AttributeError, TypeError, ValueError) as error:
        raise BadInputError(
            f"agent {agent!r}: expected to declare it resumable, found {error}; set resumable = True in its class"
        ) from error
    return agent


def is_resumable(agent: object) -> bool:
    """Whether an agent says that it can go on elsewhere."""
    return getattr(agent, _DECLARED, False) is True
