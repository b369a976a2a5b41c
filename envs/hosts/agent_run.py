"""This file holds the run of an agent: in a task and context of its own, until it ends or is ended."""

import asyncio
import time
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.errors import AgentFailedError
from agent_layer.schema import Task
from envs.agents import Target
from envs.failures import Ending, classify_failure
from envs.progress import Progress, watching
from tracer import enter_rollout
from tracer.core import Rollout, json_value

StopReason: TypeAlias = Literal["cancel", "lost", "drain", "limit", "pause"]
"""Why a run is ended early: its rollout was cancelled, its lease is lost, the worker stops, it used up what its task
allows, or it pauses at a step boundary."""

STOPPED: Final[dict[str, Ending]] = {
    "cancel": Ending(status="cancelled", cause="user", error="the rollout was cancelled"),
    "lost": Ending(status="lost", cause="infra", error="the lease was lost"),
    "drain": Ending(status="lost", cause="infra", error="the worker stopped"),
    "limit": Ending(status="failed", cause="user", error="the agent used up what its task allows"),
    "pause": Ending(status="paused"),
}


_TICK_SECONDS = 0.05
"""Looked at no more often while a run that has hardly any time left waits for its place."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    ending: Ending
    result: object = None
    """What the agent returned, a JSON value."""
    seconds: float


class AgentRun:
    """One run of an agent; whatever it raises is data.

    Args:
        target: the agent. Its task is cancelled with the reason as message.
        task: what it is to do.
        rollout: in which.
        wall_seconds: longest run, once the target has a place to run in; None: no limit is kept here.
        progress: told of what the target says; its start is over at the latest when the run is.
    """

    def __init__(
        self, target: Target, task: Task, rollout: Rollout, wall_seconds: float | None, progress: Progress
    ) -> None:
        self._target = target
        self._task = task
        self._rollout = rollout
        self._wall_seconds = wall_seconds
        self._progress = progress
        self._stopped: asyncio.Future[tuple[StopReason, Ending]] = asyncio.get_running_loop().create_future()

    def stop(self, why: StopReason, ending: Ending | None = None) -> None:
        """End the run early.

        Args:
            why: the first reason counts.
            ending: how it is to be recorded; None: as usual for this reason.
        """
        if not self._stopped.done():
            self._stopped.set_result((why, ending or STOPPED[why]))

    async def wait(self, grace_seconds: float) -> RunResult:
        """Run the agent to its end.

        Args:
            grace_seconds: for an agent that is stopped to end; after that it is left to itself, without a key.
        """
        began = time.monotonic()
        running = asyncio.create_task(self._run())
        try:
            await self._wait_for(running)
            if not running.done() or self._stopped.done():
                self.stop("limit", self._out_of_time())
                running.cancel(self._stopped.result()[0])
                await asyncio.wait({running}, timeout=grace_seconds)
        finally:
            running.cancel()
            self._progress.start()
        ending, result = self._ending(running)
        return RunResult(ending=ending, result=json_value(result), seconds=time.monotonic() - began)

    async def _wait_for(self, running: asyncio.Task[object]) -> None:
        """Wait until it has ended, is to be stopped, or has run as long as it may."""
        done = set[object]()
        until = None if self._wall_seconds is None else self._progress.ran_seconds + self._wall_seconds
        while not done and (until is None or self._progress.ran_seconds < until):
            left = None if until is None else max(_TICK_SECONDS, until - self._progress.ran_seconds)
            done, _ = await asyncio.wait({running, self._stopped}, timeout=left, return_when="FIRST_COMPLETED")

    async def _run(self) -> object:
        with enter_rollout(self._rollout, agent=self._task.agent), watching(self._progress):
            try:
                return await self._target(self._task, self._rollout)
            except SystemExit as error:  # would end the process and all attempts beside this one
                raise AgentFailedError(
                    f"attempt {self._rollout.trajectory_id}: its agent called exit({error})"
                ) from error

    def _ending(self, running: asyncio.Task[object]) -> tuple[Ending, object]:
        """How it ended, and its result."""
        if self._stopped.done():
            _take_note(running)
            return self._stopped.result()[1], None
        if running.cancelled():
            return Ending(status="failed", cause="user", error="the agent cancelled itself"), None
        error = running.exception()
        return (classify_failure(error), None) if error is not None else (Ending(), running.result())

    def _out_of_time(self) -> Ending:
        limit = self._task.limits.wall_seconds  # of all holders together; this one may have had less
        error = f"the agent ran longer than wall_seconds ({limit:g})" if limit is not None else None
        return Ending(status="failed", cause="user", error=error)


def _take_note(running: asyncio.Task[object]) -> None:
    """Its error is known of, and nobody's concern."""
    if running.done() and not running.cancelled():
        running.exception()
