"""This file holds the run of an agent: in a task and context of its own, until it ends or is ended."""

import asyncio
import time
from typing import Literal, TypeAlias

import msgspec

from agent_layer.errors import AgentFailedError
from agent_layer.schema.task import Task
from envs.failures import Ending, ending_of
from envs.targets import Target
from tracer import Rollout, enter_rollout
from tracer.contents import json_value

__all__ = ["AgentRun", "Ran", "Stop"]

Stop: TypeAlias = Literal["cancel", "lost", "drain"]
"""Why a run is ended early: its rollout was cancelled, its lease is lost, or the worker stops."""

_STOPPED: dict[Stop, Ending] = {
    "cancel": Ending(status="cancelled", cause="user", error="the rollout was cancelled"),
    "lost": Ending(status="lost", cause="infra", error="the lease was lost"),
    "drain": Ending(status="lost", cause="infra", error="the worker stopped"),
}


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    ending: Ending
    result: object = None
    """What the agent returned, a JSON value."""
    seconds: float


class AgentRun:
    """One run of an agent; whatever it raises is data."""

    def __init__(self, target: Target, task: Task, rollout: Rollout) -> None:
        self._target = target
        self._task = task
        self._rollout = rollout
        self._running: asyncio.Task[object] | None = None
        self._stop: Stop | None = None

    def stop(self, why: Stop) -> None:
        """End the run early."""
        self._stop = self._stop or why
        if self._running is not None:
            self._running.cancel()

    async def wait(self, grace_seconds: float) -> Ran:
        """Run the agent to its end.

        Args:
            grace_seconds: for an agent that is out of time to end; after that it is left to itself, without a key.
        """
        began = time.monotonic()
        running = self._running = asyncio.create_task(self._run())
        if self._stop is not None:
            running.cancel()
        try:
            await asyncio.wait({running}, timeout=self._task.limits.wall_seconds)
        finally:
            is_late = running.cancel()
        if is_late:
            await asyncio.wait({running}, timeout=grace_seconds)
        result = running.result() if not is_late and _has_result(running) else None
        ending = self._out_of_time() if is_late else self._ending(running)
        return Ran(ending=ending, result=json_value(result), seconds=time.monotonic() - began)

    async def _run(self) -> object:
        with enter_rollout(self._rollout, agent=self._task.agent):
            try:
                return await self._target(self._task, self._rollout)
            except SystemExit as error:  # would end the worker and all attempts beside this one
                raise AgentFailedError(
                    f"attempt {self._rollout.trajectory_id}: its agent called exit({error})"
                ) from error

    def _ending(self, running: asyncio.Task[object]) -> Ending:
        if self._stop is not None:
            return _STOPPED[self._stop]
        if running.cancelled():
            return Ending(status="failed", cause="user", error="the agent cancelled itself")
        error = running.exception()
        return Ending() if error is None else ending_of(error)

    def _out_of_time(self) -> Ending:
        limit = self._task.limits.wall_seconds
        return Ending(status="failed", cause="user", error=f"the agent ran longer than wall_seconds ({limit:g})")


def _has_result(running: asyncio.Task[object]) -> bool:
    return not running.cancelled() and running.exception() is None
