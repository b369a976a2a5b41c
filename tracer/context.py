"""This file holds what surrounds a call: the current rollout, the agent and node that speak, the call before."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema.codec import LogRecord
from agent_layer.schema.ids import new_id
from agent_layer.schema.reward import Reward, RewardSource
from agent_layer.schema.step import Role
from tracer.traceparent import new_trace_id

if TYPE_CHECKING:
    from agent_layer.recorder.log import FlushReport
    from tracer.contents import Contents
    from tracer.gateway import OpenedRollout

__all__ = [
    "Rollout",
    "Scope",
    "Sink",
    "Trail",
    "current",
    "current_scope",
    "enter_block",
    "enter_scope",
    "leave_block",
    "reward",
]


class Sink(Protocol):
    """Takes records; the recorder is one, ``tracer.testing.capture`` another."""

    def append(self, *records: LogRecord) -> str:
        """Keep the records, safe from the death of this process, and give the name of the log that holds them."""
        ...

    def is_settled(self, log_name: str) -> bool:
        """Tell whether all of that log is in the store."""
        ...

    def flush(self, timeout: float | None = None) -> "FlushReport":
        """Wait until everything this process appended is in the store."""
        ...


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One attempt at a task, as the code that runs inside it sees it."""

    trajectory_id: str
    rollout_id: str
    attempt: int
    run: str
    sink: Sink = field(repr=False)
    base_url: str | None = None
    """Address of the model for this attempt alone; None without a gateway: clients keep their own."""
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    trace_id: str = field(default_factory=new_trace_id)
    """32 hexadecimal digits, as in OpenTelemetry."""
    stored: set[str] = field(default_factory=set[str], repr=False, compare=False)
    """Hashes of contents that are already recorded in this trajectory."""
    answers: dict[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)
    """Call id by the id of the message or tool call that it gave."""

    messages: dict[int, tuple[object, object, str]] = field(
        default_factory=dict[int, tuple[object, object, str]], repr=False, compare=False
    )
    """(message, its text, content hash) by the ``id()`` of message objects that are recorded and may come again."""
    unfinished: dict[str, Callable[[], None]] = field(
        default_factory=dict[str, Callable[[], None]], repr=False, compare=False
    )
    """By call id: records that the call's stream was given up."""
    logs: set[str] = field(default_factory=set[str], repr=False, compare=False)
    """Names of the logs that hold records of this attempt."""

    @classmethod
    def of(cls, opened: "OpenedRollout", *, run: str, sink: Sink) -> "Rollout":
        """Make the handle of an attempt that a gateway has opened."""
        return cls(
            trajectory_id=opened.trajectory_id,
            rollout_id=opened.rollout_id,
            attempt=opened.attempt,
            run=run,
            sink=sink,
            base_url=opened.base_url,
            api_key=opened.api_key,
            model=opened.model,
        )

    def give_up_unfinished(self) -> None:
        """Record streams that nobody reads any more as aborted; collecting them as garbage may take for ever."""
        for give_up in list(self.unfinished.values()):
            give_up()

    def append(self, *records: LogRecord) -> None:
        """Keep records of this attempt."""
        self.logs.add(self.sink.append(*records))

    def reward(
        self,
        score: float | None,
        name: str = "reward",
        *,
        step: int | None = None,
        agent: str | None = None,
        source: RewardSource = "agent",
    ) -> None:
        """Record a judgement of the rollout, or of one step or one agent of it.

        Args:
            score: None says that no judgement could be made, which is not zero.
            name: which of the task's rewards; a later one of the same name replaces it.
            step: index of the step that is judged, from 0.
            agent: name of the agent that is judged, when no step is given.
            source: who judges.
        """
        self.append(
            Reward(
                trajectory_id=self.trajectory_id,
                reward_id=new_id(),
                run=self.run,
                at=time.time(),
                name=name,
                score=None if score is None else float(score),
                scope="step" if step is not None else "agent" if agent is not None else "rollout",
                step=step,
                agent=agent,
                source=source,
                status="missing" if score is None else "ok",
            )
        )


@dataclass
class Trail:
    """What one line of thought has left so far; shared by all contexts that belong to it."""

    latest_call: str | None = None
    """Call id whose answer led here."""
    environment: str | None = None
    """Content hash of the newest ``tracer.state``."""


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
    block: object = None
    """Id of the graph, node or chain that made this scope; None where nothing will end it by its id."""
    block_name: object = None
    outer: "Scope | None" = None
    """What ``leave_block`` goes back to."""


_SCOPE: ContextVar[Scope | None] = ContextVar("tracer_scope", default=None)


def current_scope() -> Scope | None:
    """Give the scope of this context; None outside any rollout."""
    return _SCOPE.get()


def current() -> Rollout | None:
    """Give the rollout that this code runs in; None outside any."""
    scope = _SCOPE.get()
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
    """Make this the scope until ``leave_block``; for callbacks, which cannot be ``with`` blocks."""
    _SCOPE.set(scope)


def leave_block(block: object) -> None:
    """Go back to the scope outside the block; nothing happens in a context that never entered it."""
    scope = _SCOPE.get()
    if scope is not None and scope.block == block:
        _SCOPE.set(scope.outer)


@contextmanager
def enter_scope(scope: Scope | None) -> Generator[Scope | None]:
    """Run the block in this scope; tasks, threads and graph nodes started inside inherit it."""
    token = _SCOPE.set(scope)
    try:
        yield scope
    finally:
        _SCOPE.reset(token)
