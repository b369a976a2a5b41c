"""This file holds what surrounds a call: the current rollout, the agent and node that speak, the call before."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import GraphPlace, RewardSource, Role
from tracer.core.rollout_handle import Rollout

if TYPE_CHECKING:
    from tracer.core.contents import ContentWriter, ToolUse


@dataclass
class CallLineage:
    """What one line of thought has left so far; shared by all contexts that belong to it."""

    latest_call: str | None = None
    """Call id whose answer led here."""
    environment: str | None = None
    """Content hash of the newest ``tracer.state``."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks in this context, and from which state."""

    rollout: Rollout
    lineage: CallLineage = msgspec.field(default_factory=CallLineage)
    agents: tuple[str, ...] = ()
    """Names from the outermost agent to the one that speaks."""
    role: Role | None = None
    node: str | None = None
    """Graph node or function."""
    conversation: str | None = None
    read_state: Callable[["ContentWriter"], str] | None = None
    """Gives the content hash of the framework's state; called only when a model call needs it."""
    tool: "ToolUse | None" = None
    """The tool that a framework is running here."""
    graph: GraphPlace | None = None
    place: object = None
    """What a framework runs here, as the framework's integration knows it; None outside frameworks."""

    @property
    def agent(self) -> str | None:
        """Name of the agent that speaks."""
        return self.agents[-1] if self.agents else None

    def agents_with(self, name: str | None) -> tuple[str, ...]:
        """Names of the agents here when this one speaks; one that speaks already is not its own sub-agent."""
        return self.agents if name is None or name == self.agent else (*self.agents, name)


_SCOPE: ContextVar[Scope | None] = ContextVar("tracer_scope")
_CARRIED: ContextVar[bool] = ContextVar("tracer_carried", default=False)
_REFINEMENTS: list[Callable[[Scope], Scope]] = []


def add_scope_refinement(by: Callable[[Scope], Scope]) -> None:
    """Let a framework's integration say where in the framework a scope is; asked only when somebody needs to know."""
    _REFINEMENTS.append(by)


class _Process:
    scope: Scope | None = None
    """Of every context that entered none."""


def enter_process_scope(scope: Scope | None) -> None:
    """Let the whole process be in this scope, in all its threads; for one that was started for a rollout."""
    _Process.scope = scope


def _leave_to_parent() -> None:
    """Forget in a forked child what the parent has begun and will end."""
    if (scope := outer_scope()) is not None:
        scope.rollout.unfinished.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def outer_scope() -> Scope | None:
    """Give the scope that this context was entered with, whatever a framework runs in it."""
    return _SCOPE.get(_Process.scope)


def current_scope() -> Scope | None:
    """Give the scope of this context; None outside any rollout."""
    scope = outer_scope()
    if scope is not None:
        for refine in _REFINEMENTS:
            scope = refine(scope)
    return scope


def is_context_propagated() -> bool:
    """Whether threads that are started here are to inherit this context."""
    return _CARRIED.get() or outer_scope() is not None


@contextmanager
def propagate_context() -> Generator[None]:
    """Let threads that are started in this block inherit its context, outside rollouts too."""
    token = _CARRIED.set(True)  # a context variable has no names for its values
    try:
        yield
    finally:
        _CARRIED.reset(token)


def current() -> Rollout | None:
    """Give the rollout that this code runs in; None outside any."""
    scope = outer_scope()
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


@contextmanager
def enter_scope(scope: Scope | None) -> Generator[Scope | None]:
    """Run the block in this scope; tasks, threads and graph nodes started inside inherit it."""
    token = _SCOPE.set(scope)
    try:
        yield scope
    finally:
        with suppress(
            ValueError
        ):  # a generator that is left half-way is closed in another context: that of whoever does
            _SCOPE.reset(token)
