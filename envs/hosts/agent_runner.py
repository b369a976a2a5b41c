"""This file holds the slots of a host: runs of the agent, side by side in its event loop, as the worker asks."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, cast

import msgspec

from agent_layer.recorder import FlushReport
from agent_layer.schema import LogRecord
from agent_layer.settings import Settings
from envs.agents import Target
from envs.checkpoints import RemoteCheckpointer
from envs.failures import describe
from envs.hosts.agent_run import AgentRun, RunResult, StopReason
from envs.hosts.channel import Channel
from envs.hosts.protocol import Active, Ended, FromHost, Save, Saved, Start, Started, Stop, Stopping, ToHost
from envs.progress import Progress
from tracer.core import Rollout, Sink

_TELL_SECONDS = 0.2
"""Between two looks for runs of which something was recorded."""


class _AttemptSink:
    """Takes the records of one attempt, and notes that there were some."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.is_active = False
        """Whether anything was recorded since somebody made this False."""

    def append(self, *records: LogRecord) -> str:
        """See Sink."""
        self.is_active = True
        return self._sink.append(*records)

    def is_settled(self, log_name: str) -> bool:
        """See Sink."""
        return self._sink.is_settled(log_name)

    def flush(self, timeout: float | None = None) -> FlushReport:
        """See Sink."""
        return self._sink.flush(timeout)


class _Run(NamedTuple):
    run: AgentRun
    sink: _AttemptSink
    keeper: RemoteCheckpointer


class AgentRunner:
    """Runs the agent as often as it is told to, and tells how each run ended.

    Args:
        target: the agent.
        settings: for how long a run that is stopped is waited for.
        sink: takes what runs record.
        complete: called in a thread before an end is told.
    """

    def __init__(
        self, target: Target, settings: Settings, sink: Sink, complete: Callable[[], None] | None = None
    ) -> None:
        self._complete = complete
        self._target = target
        self._settings = settings
        self._sink = sink
        self._channel: Channel[ToHost] | None = None
        self._runs: dict[str, _Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def speak(self, channel: Channel[ToHost]) -> None:
        """Answer there."""
        self._channel = channel

    def hear(self, message: ToHost) -> None:
        """Do what the worker asks."""
        match message:
            case Start():
                task = asyncio.create_task(self._see_through(message, self._begin(message)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case Stop():
                self._tell(Stopping(token=message.token))
                if (found := self._runs.get(message.token)) is not None:
                    found.run.stop(cast("StopReason", message.why))
            case Saved():
                if (found := self._runs.get(message.token)) is not None:
                    found.keeper.hear(message.number, is_pausing=message.is_pausing, error=message.error)
            case _:
                return

    async def tell_activity(self) -> None:
        """Tell again and again of which runs something was recorded, until cancelled."""
        while True:
            await asyncio.sleep(_TELL_SECONDS)
            active = [token for token, one in self._runs.items() if one.sink.is_active]
            for token in active:
                self._runs[token].sink.is_active = False
            if active:
                self._tell(Active(tokens=active))

    def _begin(self, start: Start) -> Rollout:
        """Note the run at once: the worker may have it stopped in the same breath."""
        sink = _AttemptSink(self._sink)
        keeper = RemoteCheckpointer(
            lambda number, state: self._tell(Save(token=start.token, number=number, state=state)),
            lambda: run.stop("pause"),
        )
        rollout = Rollout(
            trajectory_id=start.trajectory_id,
            rollout_id=start.rollout_id,
            attempt=start.attempt,
            run=start.run,
            base_url=start.base_url,
            api_key=start.api_key,
            model=start.model,
            trace=start.trace,
            sink=sink,
            keeper=keeper if start.is_resumable else None,
            kept=start.kept,
        )
        progress = Progress(lambda: self._tell(Started(token=start.token)))
        run = AgentRun(self._target, start.task, rollout, None, progress)
        self._runs[start.token] = _Run(run, sink, keeper)
        return rollout

    async def _see_through(self, start: Start, rollout: Rollout) -> None:
        try:
            ran = await self._runs[start.token].run.wait(self._settings.close_seconds)
        finally:
            del self._runs[start.token]
        if self._complete is not None:
            await asyncio.to_thread(self._complete)
        self._end(start.token, ran, sorted(rollout.logs))

    def _end(self, token: str, ran: RunResult, logs: list[str]) -> None:
        ended = Ended(
            token=token,
            status=ran.ending.status,
            cause=ran.ending.cause,
            error=ran.ending.error,
            result=ran.result,
            seconds=ran.seconds,
            logs=logs,
        )
        try:
            self._tell(ended)
        except (OverflowError, TypeError, ValueError) as error:  # no JSON value after all
            said = f"its result cannot be kept: {describe(error)}"
            self._tell(msgspec.structs.replace(ended, status="failed", cause="user", error=said, result=None))

    def _tell(self, message: FromHost) -> None:
        if self._channel is not None:
            self._channel.send(message)
