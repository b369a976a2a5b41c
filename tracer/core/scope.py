"""Scope of a call: the current rollout, the agent and node that call, and the call before."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import ParamSpec, Protocol, SupportsFloat, TypeVar

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import GraphPlace, RewardSource, Role
from tracer.core.contents import ContentWriter
from tracer.core.errors import add_failure_note, warn_once
from tracer.core.rollout_handle import Rollout

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class CallLineage:
    """Newest call and state of one sequence of calls, each caused by the one before; shared by all its contexts."""

    latest_call: str | None = None
    """Id of the call whose answer led here."""
    environment: str | None = None
    """Content hash of the newest ``tracer.state``."""


class RunningTool(Protocol):
    """Tool use of a framework, which the tool's own function may adopt."""

    name: str
    call_id: str | None
    is_open: bool
    is_taken: bool


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The caller in this context, and its state."""

    rollout: Rollout
    lineage: CallLineage = msgspec.field(default_factory=CallLineage)
    agents: tuple[str, ...] = ()
    """Agent names, from the outermost to the one that calls."""
    role: Role | None = None
    node: str | None = None
    """Graph node or function."""
    conversation: str | None = None
    read_state: Callable[[ContentWriter], str] | None = None
    """Returns the content hash of the framework's state; called only when a model call needs it."""
    tool: RunningTool | None = None
    """The tool that a framework is running here."""
    graph: GraphPlace | None = None
    place: object = None
    """The framework's run of this code, as its integration represents it; None outside frameworks."""

    @property
    def agent(self) -> str | None:
        """Name of the agent that calls."""
        return self.agents[-1] if self.agents else None

    def agents_with(self, name: str | None) -> tuple[str, ...]:
        """Return the agent names with ``name`` innermost; an agent is not its own sub-agent."""
        return self.agents if name is None or name == self.agent else (*self.agents, name)


_SCOPE: ContextVar[Scope | None] = ContextVar("tracer_scope", default=None)
_CARRIED: ContextVar[bool] = ContextVar("tracer_carried", default=False)
_REFINEMENTS: list[Callable[[Scope], Scope]] = []


def add_scope_refinement(by: Callable[[Scope], Scope]) -> None:
    """Register a function that adds a framework's node and state to a scope; called only when the scope is needed."""
    _REFINEMENTS.append(by)


class _Process:
    scope: Scope | None = None
    """Scope of every context that entered none."""


def enter_process_scope(scope: Scope | None) -> None:
    """Set the scope of the whole process, all threads included; for a process that was started for a rollout."""
    if scope is not None:
        scope.rollout.life.open_block()  # which never ends: the starter of the process ends the rollout
    _Process.scope = scope


def _leave_to_parent() -> None:
    """Drop in a forked child the open calls and tools, which the parent will end."""
    if (scope := _find_scope()) is not None:
        scope.rollout.unfinished.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def outer_scope() -> Scope | None:
    """Return the scope that this context was entered with, without what a framework adds.

    None where its rollout has ended, with one warning: a thread, task or process may outlive it.
    """
    return _find_scope(live_scope)


def live_scope(scope: Scope) -> Scope | None:
    """Return the scope; None, with one warning, where its rollout has ended."""
    if not scope.rollout.life.is_over:
        return scope
    warn_once(
        "tracer.rollout",
        f"rollout {scope.rollout.rollout_id} has ended, but a thread, task or process that began inside it still works;"
        " what it does now is recorded in no rollout. Wait for it inside the block, or hand each piece of work to a"
        " pool inside the rollout that it belongs to",
    )
    return None


def _find_scope(check: Callable[[Scope], Scope | None] = lambda scope: scope) -> Scope | None:
    return ((scope := _SCOPE.get()) and check(scope)) or _Process.scope


def current_scope() -> Scope | None:
    """Return the scope of this context; None outside rollouts."""
    scope = outer_scope()
    if scope is not None:
        for refine in _REFINEMENTS:
            scope = refine(scope)
    return scope


def is_context_propagated() -> bool:
    """Whether threads that start here inherit this context."""
    return _CARRIED.get() or _find_scope() is not None


def call_outside_rollouts(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function such that the threads and forked children that it starts are in no rollout of this context.

    Other context variables reach them as before.
    """
    context = copy_context()
    context.run(_SCOPE.set, None)
    return context.run(function, *args, **kwargs)


@contextmanager
def propagate_context() -> Generator[None]:
    """Context manager: threads started inside inherit the context, outside rollouts too."""
    token = _CARRIED.set(True)  # set() takes its value by position only
    try:
        yield
    finally:
        _CARRIED.reset(token)


def current() -> Rollout | None:
    """Return the current rollout; None outside rollouts."""
    scope = outer_scope()
    return scope.rollout if scope else None


def reward(
    score: SupportsFloat | None,
    name: str = "reward",
    *,
    step: int | None = None,
    agent: str | None = None,
    source: RewardSource = "agent",
) -> None:
    """Record a judgement of the current rollout; see ``Rollout.reward``.

    Raises: BadInputError: there is no current rollout, so the judgement would be lost; or it is no finite number.
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
    """Context manager: run the block in this scope. Tasks, threads and graph nodes started inside inherit it."""
    token = _SCOPE.set(scope)
    try:
        yield scope
    finally:
        with suppress(ValueError):  # an abandoned generator may be closed in another context
            _SCOPE.reset(token)


@contextmanager
def enter_attempt(scope: Scope) -> Generator[None]:
    """Context manager: run the block in a scope whose rollout is open at least as long; leave no call in it open."""
    rollout = scope.rollout
    rollout.life.open_block()
    with enter_scope(scope):
        try:
            yield
        except BaseException as error:
            with add_failure_note(error, f"rollout {rollout.rollout_id} could not be ended"):
                rollout.abandon_unfinished()
            raise
        finally:
            rollout.life.close_block()
        rollout.abandon_unfinished()
