"""This file holds what surrounds a call: the current rollout, the agent and node that speak, the call before."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema.reward import RewardSource
from agent_layer.schema.step import Role
from tracer.handle import Rollout

if TYPE_CHECKING:
    from tracer.contents import Contents

__all__ = ["Block", "Scope", "Trail", "current", "current_scope", "enter_block", "enter_scope", "reward"]


@dataclass
class Trail:
    """What one line of thought has left so far; shared by all contexts that belong to it."""

    latest_call: str | None = None
    """Call id whose answer led here."""
    environment: str | None = None
    """Content hash of the newest ``tracer.state``."""


@dataclass(eq=False)
class Block:
    """A graph's node while it runs; it may end in another context than it began in."""

    is_open: bool = True


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks in this context, and from which state."""

    rollout: Rollout
    trail: Trail = msgspec.field(default_factory=Trail)
    agent: str | None = None
    role: Role | None = None
    node: str | None = None
    """Graph node or function."""
    conversation: str | None = None
    read_state: Callable[["Contents"], str] | None = None
    """Gives the content hash of the framework's state; called only when a model call needs it."""
    place: object = None
    """Which run of which node of which graph in a graph; None outside graphs."""
    block: Block | None = None
    outer: "Scope | None" = None
    """Scope outside the block."""


_SCOPE: ContextVar[Scope | None] = ContextVar("tracer_scope", default=None)


def current_scope() -> Scope | None:
    """Give the scope of this context; None outside any rollout."""
    scope = _SCOPE.get()
    while scope is not None and scope.block is not None and not scope.block.is_open:
        scope = scope.outer
    return scope


def current() -> Rollout | None:
    """Give the rollout that this code runs in; None outside any."""
    scope = current_scope()
    return scope.rollout if scope else None


def reward(
    score: float | None,
    name: str = "reward",
    *,
    step: int | None = None,
    agent: str | None = None,
    source: RewardSource = "agent",
) -> None:
    """Record a judgement of the current rollout; see ``Rollout.reward``.

    Raises: BadInputError: there is no rollout here, so the judgement would be lost.
    """
    rollout = current()
    if rollout is None:
        raise BadInputError(
            f"reward {name!r}: expected to be given inside a rollout, but none is entered here;"
            " give it within 'with tracer.rollout(...)', or call reward() of the rollout itself"
        )
    rollout.reward(score, name, step=step, agent=agent, source=source)


def enter_block(scope: Scope) -> None:
    """Make this the scope until its block is closed; for callbacks, which cannot be ``with`` blocks."""
    _SCOPE.set(scope)


@contextmanager
def enter_scope(scope: Scope | None) -> Generator[Scope | None]:
    """Run the block in this scope; tasks, threads and graph nodes started inside inherit it."""
    token = _SCOPE.set(scope)
    try:
        yield scope
    finally:
        _SCOPE.reset(token)
