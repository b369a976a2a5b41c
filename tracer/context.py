"""This file holds what surrounds a call: the current rollout, the agent and node that speak, the call before."""

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from agent_layer.schema.codec import LogRecord
from agent_layer.schema.ids import new_id
from agent_layer.schema.reward import Reward, RewardSource
from tracer.gateway import OpenedRollout

__all__ = ["Rollout", "Scope", "Sink", "Trail", "current", "current_scope", "enter_rollout", "enter_scope"]


class Sink(Protocol):
    """Takes records; the recorder is one, ``tracer.testing.capture`` another."""

    def append(self, *records: LogRecord) -> str:
        """Keep the records; they are safe from the death of this process when this returns."""
        ...


def _new_trace_id() -> str:
    return os.urandom(16).hex()


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
    trace_id: str = field(default_factory=_new_trace_id)
    """32 hexadecimal digits, as in OpenTelemetry."""
    stored: set[str] = field(default_factory=set[str], repr=False, compare=False)
    """Hashes of contents that are already recorded in this trajectory."""
    answers: dict[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)
    """Call id by the id of the message or tool call that it gave."""

    @classmethod
    def of(cls, opened: OpenedRollout, *, run: str, sink: Sink) -> "Rollout":
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
        self.sink.append(
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


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Who speaks in this context."""

    rollout: Rollout
    agent: str | None = None
    node: str | None = None
    trail: Trail = field(default_factory=Trail)


_SCOPE: ContextVar[Scope | None] = ContextVar("tracer_scope", default=None)


def current_scope() -> Scope | None:
    """Give the scope of this context; None outside any rollout."""
    return _SCOPE.get()


def current() -> Rollout | None:
    """Give the rollout that this code runs in; None outside any."""
    scope = _SCOPE.get()
    return scope.rollout if scope else None


@contextmanager
def enter_rollout(rollout: Rollout, *, agent: str | None = None) -> Generator[Rollout]:
    """Run the block inside an attempt that somebody else opened and will end, such as a worker."""
    with enter_scope(Scope(rollout=rollout, agent=agent)):
        yield rollout


@contextmanager
def enter_scope(scope: Scope) -> Generator[Scope]:
    """Run the block in this scope; tasks, threads and graph nodes started inside inherit it."""
    token = _SCOPE.set(scope)
    try:
        yield scope
    finally:
        _SCOPE.reset(token)
