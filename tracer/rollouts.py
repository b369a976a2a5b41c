"""Rollouts that a program opens itself: ``with tracer.rollout(task="t1"): ...``.

With a gateway, the rollout is opened there. Its calls go to the gateway, which records them with their tokens and
accepts the rollout once all of it is stored. Without one, this process records everything, at text level.
"""

import asyncio
import inspect
import os
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial, wraps
from types import TracebackType
from typing import ParamSpec, TypedDict, TypeVar, Unpack, cast

import msgspec

from agent_layer.errors import (
    AgentLayerError,
    BackPressureError,
    BadInputError,
    EngineError,
    NotWholeError,
    RedactionError,
    UnreachableError,
)
from agent_layer.schema import (
    Accepted,
    Cause,
    EndStatus,
    JsonObject,
    Limits,
    OpenRequest,
    Outcome,
    RewardSpec,
    Split,
    TraceContext,
    check_name,
    make_attempt_started,
    safe_repr,
)
from tracer.core import Rollout, Scope, add_failure_note, current, describe_traceback, enter_attempt, warn_once
from tracer.integrations import instrument
from tracer.pools import propagate_context_to_pools
from tracer.session import Session, active_session

P = ParamSpec("P")
T = TypeVar("T")
_LIMIT_CODES = ("rollout_limit", "context_length_exceeded")
"""Codes of calls that were refused because the policy used up turns, tokens or context."""
_POLL_SECONDS = 0.01
_INFRA_ERRORS = (BackPressureError, EngineError, NotWholeError, RedactionError, UnreachableError)
"""Errors of this project that are no fault of the code in the block."""
_MAX_WAITING = 64
_MAX_ERROR_LENGTH = 2000
"""Rollouts of one process that may open or end at the same time."""


class RolloutOptions(TypedDict, total=False):
    """Options of a rollout beside its task."""

    task_type: str
    run: str
    split: Split
    rollout_id: str
    attempt: int
    group_id: str
    agent: str
    labels: dict[str, str]
    limits: Limits
    sampling: JsonObject
    rewards: dict[str, RewardSpec]
    env: str
    env_version: str
    calls_optional: bool


def rollout(task: str, **options: Unpack[RolloutOptions]) -> "RolloutBlock":
    """Open a rollout around a block (``with`` or ``async with``), or around each call of a function (as a decorator).

    Args:
        task: id of the task.
        options: task_type, run, split, group_id, agent, labels, limits, sampling, rewards, env, env_version,
            calls_optional; see OpenRequest.

    A block that raises ends the rollout as failed by the user's code, without a reward, and the error propagates. A
    block that exceeds the rollout's limits ends it as truncated; its rewards count.
    """
    return RolloutBlock(OpenRequest(task_id=check_name(task, "task"), **options))


@contextmanager
def enter_rollout(rollout: Rollout, *, agent: str | None = None) -> Generator[Rollout]:
    """Context manager: run the block inside an attempt that its caller, such as a worker, opens and ends.

    Threads, tasks and forked children that outlive its last block in this process are in no rollout after it.
    """
    instrument()
    propagate_context_to_pools()
    with enter_attempt(Scope(rollout=rollout, agents=(agent,) if agent else ())):
        yield rollout


class RolloutBlock:
    """A rollout that is not open yet; a context manager and a decorator."""

    def __init__(self, request: OpenRequest) -> None:
        self._request = request
        self._entered: list[tuple[Session, Rollout, AbstractContextManager[Rollout]]] = []

    def __enter__(self) -> Rollout:
        session = active_session()
        return self._enter(session, _open(session, self._request, session.clock.new_trace()))

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        with self._leave(error) as (session, rollout):
            _end(session, rollout, error)

    async def __aenter__(self) -> Rollout:
        session = active_session()
        opening = _run_in_thread(_open, session, self._request, session.clock.new_trace())
        try:
            rollout = await asyncio.shield(opening)
        except asyncio.CancelledError as error:
            opening.add_done_callback(partial(_end_unused, session, error))
            raise
        return self._enter(session, rollout)

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        with self._leave(error) as (session, rollout):
            await _run_in_thread(_end, session, rollout, error)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return the function with a new rollout around each call.

        Raises: BadInputError: it is a generator, whose calls return before it runs.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise BadInputError(
                f"rollout decorator: expected a function or coroutine, found the generator {function.__name__!r};"
                " write 'with tracer.rollout(...)' around the loop that reads it"
            )
        if isinstance(function, (classmethod, staticmethod, property)):
            kind = type(cast("object", function)).__name__
            raise BadInputError(f"rollout decorator: expected a function, found a {kind}; put it below '@{kind}'")

        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            with RolloutBlock(self._request):
                return function(*args, **kwargs)

        @wraps(function)
        async def run_coroutine(*args: P.args, **kwargs: P.kwargs) -> object:
            async with RolloutBlock(self._request):
                return await cast("Coroutine[object, object, object]", function(*args, **kwargs))

        return cast("Callable[P, T]", run_coroutine) if inspect.iscoroutinefunction(function) else run

    def _enter(self, session: Session, rollout: Rollout) -> Rollout:
        entered = enter_rollout(rollout, agent=self._request.agent)
        self._entered.append((session, rollout, entered))
        return entered.__enter__()

    @contextmanager
    def _leave(self, error: BaseException | None) -> Generator[tuple[Session, Rollout]]:
        """Context manager around the end of the rollout: it ends in any case, and an error of its block propagates."""
        session, rollout, entered = self._entered.pop(self._entered_index(current()))
        try:
            entered.__exit__(error and type(error), error, error and error.__traceback__)
        except AgentLayerError as failure:
            with add_failure_note(failure, f"rollout {rollout.rollout_id} could not be ended"):
                _end(session, rollout, failure)
            raise
        with add_failure_note(error, f"rollout {rollout.rollout_id} could not be ended") if error else nullcontext():
            yield session, rollout

    def _entered_index(self, rollout: Rollout | None) -> int:
        """Return the index of the current rollout: tasks that share a block end in any order."""
        return next((place for place, entered in enumerate(self._entered) if entered[1] is rollout), -1)


class _GatewayThreads:
    """Threads that wait for gateways. The default executor of the event loop is small, and belongs to the agent."""

    pool = ThreadPoolExecutor(_MAX_WAITING, "tracer")

    @classmethod
    def renew(cls) -> None:
        """Create a new pool in a forked child, which has none of the parent's threads."""
        cls.pool = ThreadPoolExecutor(_MAX_WAITING, "tracer")


os.register_at_fork(after_in_child=_GatewayThreads.renew)


def _run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    return asyncio.get_running_loop().run_in_executor(_GatewayThreads.pool, partial(function, *args, **kwargs))


def _end_unused(session: Session, error: BaseException, opening: asyncio.Future[Rollout]) -> None:
    """End a rollout whose block was cancelled while the gateway opened it."""
    if not opening.cancelled() and opening.exception() is None:
        _GatewayThreads.pool.submit(_end, session, opening.result(), error)


def _open(session: Session, request: OpenRequest, trace: TraceContext) -> Rollout:
    if session.inherited is not None:
        return session.inherited
    run = request.run or session.settings.run
    request = msgspec.structs.replace(request, run=run, trace=trace)
    if (gateway := session.gateway) is not None:
        return Rollout.of(gateway.open(request), run=run, sink=session.sink, trace=trace)
    started = make_attempt_started(request, rollout_id=session.clock.new_id(), run=run, at=session.clock.now())
    rollout = Rollout(
        trajectory_id=started.trajectory_id,
        rollout_id=started.rollout_id,
        attempt=started.attempt,
        run=run,
        sink=session.sink,
        trace=trace,
        clock=session.clock,
    )
    rollout.append(started)
    return rollout


def _end(session: Session, rollout: Rollout, error: BaseException | None) -> None:
    if rollout is session.inherited or rollout.process_id != os.getpid():
        return
    status, cause = _classify_ending(error)
    why = None if error is None else safe_repr(error)[:_MAX_ERROR_LENGTH]
    where = describe_traceback(error) if error is not None and status == "failed" else None
    if (gateway := session.gateway) is None:
        now = rollout.clock.now()
        rollout.append(
            Outcome(
                trajectory_id=rollout.trajectory_id,
                run=rollout.run,
                status=status,
                ended_at=now,
                cause=cause,
                error=why,
                traceback=where,
            )
        )
        if status in ("completed", "truncated"):
            rollout.append(
                Accepted(
                    trajectory_id=rollout.trajectory_id, rollout_id=rollout.rollout_id, run=rollout.run, accepted_at=now
                )
            )
        return
    if status in ("completed", "truncated"):
        _wait_until_settled(session, rollout)
    ended = gateway.end(rollout.rollout_id, attempt=rollout.attempt, status=status, error=why, traceback=where)
    if ended.error is not None:
        warn_once("tracer.rollout", f"no reward counts, {ended.error}")


def _classify_ending(error: BaseException | None) -> tuple[EndStatus, Cause | None]:
    if error is None:
        return "completed", None
    text = safe_repr(error)  # Anthropic's error has it in its text
    if any(getattr(error, "code", None) == code or code in text for code in _LIMIT_CODES):
        return "truncated", "policy"
    cause: Cause = "infra" if isinstance(error, _INFRA_ERRORS) else "user"
    return ("failed" if isinstance(error, Exception) else "cancelled"), cause


def _wait_until_settled(session: Session, rollout: Rollout) -> None:  # kept: a wait with an error of its own
    """Wait for the records of this process; the gateway waits for its own records only.

    Raises: NotWholeError: they are not in the store in time.
    """
    deadline = time.monotonic() + session.settings.seal_seconds
    while waiting := [name for name in rollout.logs if not session.sink.is_settled(name)]:
        if time.monotonic() > deadline:
            raise NotWholeError(
                f"rollout {rollout.rollout_id}: expected its {len(rollout.logs)} logs to be stored within"
                f" {session.settings.seal_seconds:g} s, but {len(waiting)} are not; see shipper.log in"
                f" {session.settings.log_dir} and run 'agent-layer doctor'"
            )
        time.sleep(_POLL_SECONDS)
