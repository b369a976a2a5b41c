"""Pools of threads and processes: a task runs in the rollout that submitted it, never in the one that began the pool.

Forked children inherit the context of the moment in which the pool begins, so a pool begins outside rollouts. Tasks of
child processes name their rollout: the child may have been forked before it was opened.
"""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from contextvars import Context, copy_context
from functools import lru_cache, wraps
from inspect import signature
from multiprocessing.pool import Pool, ThreadPool
from typing import Any, TypeVar, cast

import msgspec

from agent_layer.schema import Role, TraceContext
from tracer.core import (
    CallLineage,
    Life,
    LifeName,
    Rollout,
    Scope,
    call_outside_rollouts,
    current_scope,
    enter_attempt,
    is_context_propagated,
    live_scope,
)
from tracer.session import active_session

T = TypeVar("T")
Function = Callable[..., object]

_submit = ProcessPoolExecutor.submit
_begin = Pool.__init__
_MAX_REMEMBERED = 256
"""Rollouts whose recorded contents a child process remembers, so that it records each once."""


def propagate_context_to_pools() -> None:
    """Patch the pools of ``multiprocessing`` and the process pool of ``concurrent.futures``; once."""
    if Pool.__init__ is _begin:
        ProcessPoolExecutor.submit = _submit_inside
        Pool.__init__ = _begin_outside
        for name in ("apply_async", "_map_async", "imap", "imap_unordered"):
            setattr(Pool, name, _carry_tasks(getattr(Pool, name)))


@wraps(_begin)
def _begin_outside(self: Pool, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - passed on as they are
    begin = Context().run if isinstance(self, ThreadPool) else call_outside_rollouts  # threads inherit nothing else
    begin(_begin, self, *args, **kwargs)


@wraps(_submit)
def _submit_inside(
    self: ProcessPoolExecutor,
    function: Callable[..., T],
    /,
    *args: Any,  # noqa: ANN401 - passed on as they are
    **kwargs: Any,  # noqa: ANN401 - passed on as they are
) -> Future[T]:
    task = cast("Callable[..., T]", _name_rollout(function, self._mp_context))
    return call_outside_rollouts(_submit, self, task, *args, **kwargs)


def _carry_tasks(method: Callable[..., T]) -> Callable[..., T]:
    """Return a method of a pool, whose tasks and callbacks run in the context of its caller."""
    parameters = signature(method)

    @wraps(method)
    def carry(self: Pool, *args: Any, **kwargs: Any) -> T:  # noqa: ANN401 - passed on as they are
        if not is_context_propagated():
            return method(self, *args, **kwargs)
        context, bound = copy_context(), parameters.bind(self, *args, **kwargs)
        given = bound.arguments
        given["func"] = (
            _InContext(context, given["func"])
            if isinstance(self, ThreadPool)
            else _name_rollout(given["func"], cast("Any", self)._ctx)  # noqa: SLF001 - it has no public name
        )
        if method.__name__.startswith("imap"):  # a thread of the pool reads the inputs
            given["iterable"] = _read_inside(context, given["iterable"])
        for name in ("callback", "error_callback"):
            if given.get(name) is not None:
                given[name] = _InContext(context, given[name])
        return method(*bound.args, **bound.kwargs)

    return carry


class _InContext:
    """A function that runs in a copy of a context, also in several threads at a time."""

    def __init__(self, context: Context, function: Function) -> None:
        self._context, self._function = context, function

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._context.copy().run(self._function, *args, **kwargs)


def _read_inside(context: Context, inputs: Iterable[object]) -> Generator[object]:
    iterator, end = context.run(iter, inputs), object()
    while (item := context.run(next, iterator, end)) is not end:
        yield item


class _Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The scope of a task, in words that reach another process."""

    trajectory_id: str
    rollout_id: str
    attempt: int
    run: str
    life: LifeName | None
    base_url: str | None
    api_key: str | None
    model: str | None
    trace: TraceContext
    agents: tuple[str, ...]
    role: Role | None
    node: str | None
    conversation: str | None
    latest_call: str | None
    environment: str | None


class _InRollout:
    """A function that a child process runs in the rollout of the code that submitted it."""

    def __init__(self, caller: _Caller, function: Function) -> None:
        self._caller, self._function = caller, function

    def __call__(self, *args: object, **kwargs: object) -> object:
        if live_scope(scope := _make_scope(self._caller)) is None:
            return self._function(*args, **kwargs)
        with enter_attempt(scope):
            return self._function(*args, **kwargs)


def _name_rollout(function: Function, context: Any) -> Function:  # noqa: ANN401 - multiprocessing does not name its type
    """Return the function of a task with its caller's rollout, if the pool's children are forked.

    Others share no memory with this process, nor its settings.
    """
    scope = current_scope()
    if scope is None or context.get_start_method(allow_none=False) != "fork":
        return function
    rollout, lineage = scope.rollout, scope.lineage
    caller = _Caller(
        trajectory_id=rollout.trajectory_id,
        rollout_id=rollout.rollout_id,
        attempt=rollout.attempt,
        run=rollout.run,
        life=rollout.life.name,
        base_url=rollout.base_url,
        api_key=rollout.api_key,
        model=rollout.model,
        trace=rollout.trace,
        agents=scope.agents,
        role=scope.role,
        node=scope.node,
        conversation=scope.conversation,
        latest_call=lineage.latest_call,
        environment=lineage.environment,
    )
    return _InRollout(caller, function)


def _make_scope(caller: _Caller) -> Scope:
    session = active_session()
    rollout = Rollout(
        trajectory_id=caller.trajectory_id,
        rollout_id=caller.rollout_id,
        attempt=caller.attempt,
        run=caller.run,
        sink=session.sink,
        base_url=caller.base_url,
        api_key=caller.api_key,
        model=caller.model,
        trace=caller.trace,
        clock=session.clock,
        life=Life(caller.life),
        stored=_recorded_contents(caller.trajectory_id),
    )
    return Scope(
        rollout=rollout,
        lineage=CallLineage(caller.latest_call, caller.environment),
        agents=caller.agents,
        role=caller.role,
        node=caller.node,
        conversation=caller.conversation,
    )


@lru_cache(_MAX_REMEMBERED)
def _recorded_contents(trajectory_id: str) -> set[str]:  # noqa: ARG001 - it is the key
    return set()
