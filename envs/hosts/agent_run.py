"""One run of an agent: in an asyncio task and context of its own, until it ends or is stopped."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.errors import AgentFailedError
from agent_layer.schema import Task
from envs.agents import Target
from envs.failures import Ending, classify_failure
from envs.grading import plain_result
from envs.progress import Progress, progress_scope
from tracer import enter_rollout
from tracer.core import Rollout

StopReason: TypeAlias = Literal["cancel", "lost", "drain", "limit", "pause"]
"""Why a run ends early: its rollout was cancelled, its lease is lost, the worker stops, its task's limits are used up,
or it pauses at a step boundary."""

STOPPED: Final[dict[str, Ending]] = {
    "cancel": Ending(status="cancelled", cause="user", error="the rollout was cancelled"),
    "lost": Ending(status="lost", cause="infra", error="the lease was lost"),
    "drain": Ending(status="lost", cause="infra", error="the worker stopped"),
    "limit": Ending(status="failed", cause="user", error="the agent used up what its task allows"),
    "pause": Ending(status="paused"),
}


_TICK_SECONDS = 0.05
"""Shortest interval of the checks while a run with little time left waits for its process."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    ending: Ending
    result: object = None
    """What the agent returned, a JSON value; numbers of any type are numbers, NaN and infinities included."""
    seconds: float


class AgentRun:
    """One run of an agent; an error that it raises becomes data.

    Args:
        target: the agent. A stop cancels its asyncio task, with the reason as message.
        task: the task that it gets.
        rollout: the attempt in which it runs.
        wall_seconds: longest run, once the target has a process; None: no limit here.
        progress: receives the target's signals; its start ends with the run at the latest.
        judge_time: returns how a run ends that took too long.
    """

    def __init__(
        self,
        target: Target,
        task: Task,
        rollout: Rollout,
        wall_seconds: float | None,
        progress: Progress,
        judge_time: Callable[[], Awaitable[Ending]] | None = None,
    ) -> None:
        self._target = target
        self._task = task
        self._rollout = rollout
        self._wall_seconds = wall_seconds
        self._progress = progress
        self._judge_time = judge_time
        self._stopped: asyncio.Future[tuple[StopReason, Ending]] = asyncio.get_running_loop().create_future()

    def stop(self, why: StopReason, ending: Ending | None = None) -> None:
        """End the run early.

        Args:
            why: the first reason counts.
            ending: how the end is recorded; None: as usual for this reason.
        """
        if not self._stopped.done():
            self._stopped.set_result((why, ending or STOPPED[why]))

    async def wait(self, grace_seconds: float) -> RunResult:
        """Run the agent to its end.

        Args:
            grace_seconds: time for a stopped agent to end; after that it is abandoned, without a key.
        """
        began = time.monotonic()
        running = asyncio.create_task(self._run())
        try:
            done = set[object]()
            until = None if self._wall_seconds is None else self._progress.ran_seconds + self._wall_seconds
            while not done and (until is None or self._progress.ran_seconds < until):
                left = None if until is None else max(_TICK_SECONDS, until - self._progress.ran_seconds)
                done, _ = await asyncio.wait({running, self._stopped}, timeout=left, return_when="FIRST_COMPLETED")
            if not running.done() or self._stopped.done():
                if not self._stopped.done() and self._judge_time is not None:
                    self.stop("limit", await self._judge_time())
                self.stop("limit")
                running.cancel(self._stopped.result()[0])
                await asyncio.wait({running}, timeout=grace_seconds)
        finally:
            running.cancel()
            self._progress.mark_prepared()
        ending, result = self._ending(running)
        return RunResult(ending=ending, result=plain_result(result), seconds=time.monotonic() - began)

    async def _run(self) -> object:
        with enter_rollout(self._rollout, agent=self._task.agent), progress_scope(self._progress):
            try:
                return await self._target(self._task, self._rollout)
            except SystemExit as error:  # would end the process with all attempts in it
                raise AgentFailedError(
                    f"attempt {self._rollout.trajectory_id}: its agent called exit({error})"
                ) from error

    def _ending(self, running: asyncio.Task[object]) -> tuple[Ending, object]:
        """Return how the run ended, and its result."""
        if self._stopped.done():
            if running.done() and not running.cancelled():
                running.exception()  # so that asyncio does not log it as unhandled
            return self._stopped.result()[1], None
        if running.cancelled():
            return Ending(status="failed", cause="user", error="the agent cancelled itself"), None
        error = running.exception()
        return (classify_failure(error), None) if error is not None else (Ending(), running.result())
