"""This file holds the handle of one attempt at a task: what it records, and where its model is."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import LogRecord, Reward, RewardSource
from agent_layer.schema.wire import TraceContext, derive_span_id
from tracer.core.clock import SYSTEM, ClockAndIds, new_trace

if TYPE_CHECKING:
    from agent_layer.recorder import FlushReport
    from agent_layer.schema.wire import OpenedRollout
    from tracer.core.contents import ToolUse


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


class Checkpointer(Protocol):
    """Keeps what an attempt saves of itself; whoever holds the attempt provides it."""

    async def keep(self, state: bytes) -> bool:
        """Store a state, and note that the attempt may go on from there under another holder.

        Returns: whether this one is to pause here.
        Raises: LeaseLostError: another holder went on with the attempt already.
        """
        ...

    async def stay_paused(self) -> object:
        """Never returns: the run of the agent is ended here, as paused."""
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
    """Where in OpenTelemetry's terms the attempt began: inside the span that was active, else in a trace of its own."""
    clock: ClockAndIds = field(default=SYSTEM, repr=False, compare=False)
    """Where its records get times and ids from."""
    process_id: int = field(default_factory=os.getpid, repr=False, compare=False)
    """Process that made this handle, and ends the attempt; children that it forks only leave it."""
    stored: set[str] = field(default_factory=set[str], repr=False, compare=False)
    """Hashes of contents that are already recorded in this trajectory."""
    answers: dict[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)
    """Call id by the id of the message or tool call that it gave."""
    messages: dict[tuple[object, ...], tuple[str, object]] = field(
        default_factory=dict[tuple[object, ...], tuple[str, object]], repr=False, compare=False
    )
    """(content hash, what its identity rests on) of recorded messages that may come again; see Contents.add_once."""
    unfinished: dict[str, Callable[[], None]] = field(
        default_factory=dict[str, Callable[[], None]], repr=False, compare=False
    )
    """By id of a call, or of a tool's use, or of a framework's run of either: records that it was given up."""
    questions: dict[tuple[str, str], "ToolUse"] = field(
        default_factory=dict[tuple[str, str], "ToolUse"], repr=False, compare=False
    )
    """By thread and interrupt of a graph: what it asked a person."""
    logs: set[str] = field(default_factory=set[str], repr=False, compare=False)
    """Names of the logs that hold records of this attempt."""
    keeper: Checkpointer | None = field(default=None, repr=False, compare=False)
    """None: nobody could go on with the attempt."""
    kept: bytes | None = field(default=None, repr=False, compare=False)
    """The state from which this holder goes on; None: it begins."""

    @classmethod
    def of(cls, opened: "OpenedRollout", *, run: str, sink: Sink, trace: TraceContext | None = None) -> "Rollout":
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
            trace=trace or new_trace(),
        )

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits, as in OpenTelemetry."""
        return self.trace.trace_id

    @property
    def span_id(self) -> str:
        """16 hexadecimal digits: the span that stands for the attempt when it is exported."""
        return derive_span_id(self.trajectory_id)

    def abandon_unfinished(self) -> None:
        """Record what nobody waits for any more: to collect abandoned streams as garbage may take for ever."""
        for abandon in list(self.unfinished.values()):
            abandon()

    def append(self, *records: LogRecord) -> None:
        """Keep records of this attempt."""
        self.logs.add(self.sink.append(*records))

    @property
    def saved(self) -> object:
        """What was last saved of the attempt before this run of the agent: where it goes on; None: it begins."""
        return None if self.kept is None else msgspec.msgpack.decode(self.kept)

    async def save(self, state: object) -> None:
        """Save where the attempt is, at a boundary between steps: no model call of it should be running.

        Should the worker die, or the run be paused, an agent that is declared resumable begins again with ``saved``,
        anywhere. Does not return when the attempt is to pause here. Outside of a worker nothing is saved.

        Args: state: text, bytes, numbers, lists and dicts of these.

        Raises:
            BadInputError: the state holds something else.
            LeaseLostError: another holder went on with the attempt; end here.
        """
        if self.keeper is None:
            return
        try:
            content = msgspec.msgpack.encode(state)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInputError(
                f"attempt {self.trajectory_id}: expected a state of text, bytes, numbers, lists and dicts to save,"
                f" found {error}; save what it can be made of again"
            ) from error
        if await self.keeper.keep(content):
            await self.keeper.stay_paused()

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
                reward_id=self.clock.new_id(),
                run=self.run,
                at=self.clock.now(),
                name=name,
                score=None if score is None else float(score),
                scope="step" if step is not None else "agent" if agent is not None else "rollout",
                step=step,
                agent=agent,
                source=source,
                status="missing" if score is None else "ok",
            )
        )
