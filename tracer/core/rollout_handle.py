"""Handle of one attempt at a task: where it records, and where its model is."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, SupportsFloat

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import LogRecord, Reward, RewardSource, TraceContext, derive_span_id, read_score
from tracer.core.clock import SYSTEM, ClockAndIds, new_trace
from tracer.core.liveness import Life

if TYPE_CHECKING:
    from agent_layer.recorder import FlushReport
    from agent_layer.schema import OpenedRollout
    from agent_layer.schema.sandbox import Sandbox


class Sink(Protocol):
    """Destination of records: the recorder, or ``tracer.testing.capture``."""

    def append(self, *records: LogRecord) -> str:
        """Append records such that they survive this process; return the name of their log."""
        ...

    def is_settled(self, log_name: str) -> bool:
        """Return whether all records of that log are in the store."""
        ...

    def flush(self, timeout: float | None = None) -> "FlushReport":
        """Wait until everything this process appended is in the store."""
        ...


class Checkpointer(Protocol):
    """Stores the states that an attempt saves; provided by the holder of the attempt."""

    async def keep(self, state: bytes) -> bool:
        """Store a state from which another holder can resume the attempt.

        Returns: whether the attempt must pause here.
        Raises: LeaseLostError: another holder has resumed the attempt.
        """
        ...

    async def stay_paused(self) -> object:
        """End the run of the agent here, as paused. Never returns."""
        ...


class OpenQuestion(Protocol):
    """A question of a graph to a person, until it is answered."""

    arguments: object
    """The question itself."""

    def record(self, output: object) -> None:
        """Record the answer."""
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
    trace: TraceContext = field(default_factory=new_trace)
    """Trace context in which the attempt began: that of the active span, else a new trace."""
    clock: ClockAndIds = field(default=SYSTEM, repr=False, compare=False)
    """Source of the times and ids of its records."""
    process_id: int = field(default_factory=os.getpid, repr=False, compare=False)
    """Process that created this handle. It ends the attempt; forked children do not."""
    life: Life = field(default_factory=Life, repr=False, compare=False)
    """Whether a block of the attempt is still open in this family of processes."""
    stored: set[str] = field(default_factory=set[str], repr=False, compare=False)
    """Hashes of contents that are already recorded in this trajectory."""
    answers: dict[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)
    """Call id by the id of the message or tool call in its answer."""
    messages: dict[tuple[object, ...], tuple[str, object]] = field(
        default_factory=dict[tuple[object, ...], tuple[str, object]], repr=False, compare=False
    )
    """(content hash, object kept alive) of recorded messages by identity; see ContentWriter.add_once."""
    unfinished: dict[str, Callable[[], None]] = field(
        default_factory=dict[str, Callable[[], None]], repr=False, compare=False
    )
    """Callbacks by id of a call, tool use or framework run: each records that it was abandoned."""
    questions: dict[tuple[str, str], OpenQuestion] = field(
        default_factory=dict[tuple[str, str], OpenQuestion], repr=False, compare=False
    )
    """Open questions to people, by thread and interrupt of a graph."""
    logs: set[str] = field(default_factory=set[str], repr=False, compare=False)
    """Names of the logs that hold records of this attempt."""
    keeper: Checkpointer | None = field(default=None, repr=False, compare=False)
    """None: the attempt cannot be resumed by another holder."""
    kept: bytes | None = field(default=None, repr=False, compare=False)
    """Encoded state from which this holder resumes; None: the attempt begins."""
    box: "Sandbox | None" = field(default=None, repr=False, compare=False)
    """None: the attempt has no sandbox."""

    @classmethod
    def of(cls, opened: "OpenedRollout", *, run: str, sink: Sink, trace: TraceContext | None = None) -> "Rollout":
        """Return the handle of an attempt that a gateway has opened."""
        return cls(
            trajectory_id=opened.trajectory_id,
            rollout_id=opened.rollout_id,
            attempt=opened.attempt,
            run=run,
            sink=sink,
            base_url=opened.base_url,
            api_key=opened.api_key,
            model=opened.model,
            trace=trace or new_trace(),
        )

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits, as in OpenTelemetry."""
        return self.trace.trace_id

    @property
    def span_id(self) -> str:
        """16 hexadecimal digits: span of the attempt when it is exported."""
        return derive_span_id(self.trajectory_id)

    @property
    def sandbox(self) -> "Sandbox":
        """The attempt's own sandbox, where model-written code may run. The worker takes the declared artifacts out of
        it when the agent has ended, and closes it.

        Raises: BadInputError: the attempt has none.
        """
        if self.box is None:
            raise BadInputError(
                f"attempt {self.trajectory_id}: has no sandbox; ask for one with 'sandbox' in its task, or declare one"
                " as the attribute 'sandbox' of the agent or environment"
            )
        return self.box

    def abandon_unfinished(self) -> None:
        """Record calls and tools that are still open as abandoned: garbage collection of a stream may never come."""
        for abandon in list(self.unfinished.values()):
            abandon()

    def append(self, *records: LogRecord) -> None:
        """Append records of this attempt."""
        self.logs.add(self.sink.append(*records))

    @property
    def saved(self) -> object:
        """Last state saved before this run of the agent, from which it resumes; None: the attempt begins."""
        return None if self.kept is None else msgspec.msgpack.decode(self.kept)

    async def save(self, state: object) -> None:
        """Save the state of the attempt, between two steps: none of its model calls may be running.

        If the worker dies or the run is paused, an agent that is declared resumable starts again with ``saved``, on any
        worker. Does not return when the attempt must pause here. Outside a worker nothing is saved.

        Args: state: text, bytes, numbers, lists and dicts of these.

        Raises:
            BadInputError: the state holds something else.
            LeaseLostError: another holder has resumed the attempt; end here.
        """
        if self.keeper is None:
            return
        try:
            content = msgspec.msgpack.encode(state)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInputError(
                f"attempt {self.trajectory_id}: expected a state of text, bytes, numbers, lists and dicts to save,"
                f" found {error}; save values from which the state can be rebuilt"
            ) from error
        if await self.keeper.keep(content):
            await self.keeper.stay_paused()

    def reward(
        self,
        score: SupportsFloat | None,
        name: str = "reward",
        *,
        step: int | None = None,
        agent: str | None = None,
        source: RewardSource = "agent",
    ) -> None:
        """Record a judgement of the rollout, or of one step or one agent of it.

        Args:
            score: a number of any type; None: no judgement could be made, which is not zero.
            name: which of the task's rewards; a later judgement of the same name replaces this one.
            step: index of the step that is judged, from 0.
            agent: name of the agent that is judged, when no step is given.
            source: kind of judge.

        Raises: BadInputError: the score is no finite number.
        """
        subject = f"reward {name!r} of attempt {self.trajectory_id}"
        self.append(
            Reward(
                trajectory_id=self.trajectory_id,
                reward_id=self.clock.new_id(),
                run=self.run,
                at=self.clock.now(),
                name=name,
                score=None if score is None else read_score(score, subject),
                scope="step" if step is not None else "agent" if agent is not None else "rollout",
                step=step,
                agent=agent,
                source=source,
                status="missing" if score is None else "ok",
            )
        )
