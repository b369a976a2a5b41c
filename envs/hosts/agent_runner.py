"""Runner of a host process: runs of the agent, side by side in one event loop."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, cast

import msgspec

from agent_layer.recorder import FlushReport
from agent_layer.schema import LogRecord
from agent_layer.settings import Settings
from envs.agents import Target
from envs.channel import Channel
from envs.checkpoints import RemoteCheckpointer
from envs.failures import describe_error
from envs.hosts.agent_run import AgentRun, StopReason
from envs.hosts.protocol import Active, Ended, FromHost, Save, Saved, Start, Started, Stop, Stopping, ToHost
from envs.progress import Progress
from envs.sandbox import AttemptSandbox
from tracer.core import Rollout, Sink

_REPORT_SECONDS = 0.2
"""Interval of the reports of active runs."""


class _AttemptSink:
    """Passes on the records of one attempt, and remembers that there were some."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.is_active = False
        """Whether anything was recorded since this was last set to False."""

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
    checkpointer: RemoteCheckpointer


class AgentRunner:
    """Runs the agent once per request, and reports how each run ended.

    Args:
        target: the agent.
        settings: how long a stopped run may take to end.
        sink: receives the records of all runs.
        complete: called in a thread before each report of an end.
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

    def attach(self, channel: Channel[ToHost]) -> None:
        """Answer over this channel."""
        self._channel = channel

    def on_message(self, message: ToHost) -> None:
        """Carry out a request of the worker."""
        match message:
            case Start():
                task = asyncio.create_task(self._run(message, self._register(message)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case Stop():
                self._send(Stopping(token=message.token))
                if (found := self._runs.get(message.token)) is not None:
                    found.run.stop(cast("StopReason", message.why))
            case Saved():
                if (found := self._runs.get(message.token)) is not None:
                    found.checkpointer.on_saved(message.number, is_pausing=message.is_pausing, error=message.error)
            case _:
                return

    async def report_activity(self) -> None:
        """Report at intervals which runs recorded something, until cancelled."""
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            active = [token for token, one in self._runs.items() if one.sink.is_active]
            for token in active:
                self._runs[token].sink.is_active = False
            if active:
                self._send(Active(tokens=active))

    def _register(self, start: Start) -> Rollout:
        """Register the run at once: the worker may stop it with its next message."""
        sink = _AttemptSink(self._sink)
        checkpointer = RemoteCheckpointer(
            lambda number, state: self._send(Save(token=start.token, number=number, state=state)),
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
            keeper=checkpointer if start.is_resumable else None,
            kept=start.kept,
            box=None if start.sandbox is None else AttemptSandbox(start.sandbox.facts, start.sandbox.address),
        )
        progress = Progress(lambda: self._send(Started(token=start.token)))
        run = AgentRun(self._target, start.task, rollout, None, progress)
        self._runs[start.token] = _Run(run, sink, checkpointer)
        return rollout

    async def _run(self, start: Start, rollout: Rollout) -> None:
        try:
            ran = await self._runs[start.token].run.wait(self._settings.close_seconds)
        finally:
            del self._runs[start.token]
            if isinstance(rollout.box, AttemptSandbox):
                await rollout.box.disconnect()
        if self._complete is not None:
            await asyncio.to_thread(self._complete)
        ended = Ended(
            token=start.token,
            status=ran.ending.status,
            cause=ran.ending.cause,
            error=ran.ending.error,
            traceback=ran.ending.traceback,
            is_self_inflicted=ran.ending.is_self_inflicted,
            result=ran.result,
            seconds=ran.seconds,
            logs=sorted(rollout.logs),
        )
        try:
            self._send(ended)
        except (OverflowError, TypeError, ValueError, RecursionError) as error:  # no JSON value after all
            text = f"its result cannot be encoded: {describe_error(error)}"
            self._send(msgspec.structs.replace(ended, status="failed", cause="user", error=text, result=None))

    def _send(self, message: FromHost) -> None:
        if self._channel is not None:
            self._channel.send(message)
