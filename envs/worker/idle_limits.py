"""Idle limits of running attempts: ends those that are idle for too long, and renews the keys of the others."""

import asyncio
import time
from collections.abc import Callable, Collection

from agent_layer.errors import AccessRefusedError
from envs.worker.attempt import Attempt
from envs.worker.context import WorkerContext
from envs.worker.gateway_attempts import renew_keys

_CHECKS_PER_LIMIT = 4
"""An idle attempt is ended at most a quarter of its limit too late."""
_TICK_SECONDS = 0.25


class LivenessMonitor:
    """Polls the gateway as often as the shortest idle limit requires, and at least with every heartbeat.

    Args:
        context: the worker that makes the attempts.
        running: returns the attempts whose agents run.
    """

    def __init__(self, context: WorkerContext, running: Callable[[], Collection[Attempt]]) -> None:
        self._context = context
        self._running = running

    async def run(self) -> None:
        """Check until cancelled."""
        checked_at = time.monotonic()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            if time.monotonic() < checked_at + self._seconds_between_checks():
                continue
            checked_at = time.monotonic()
            if opened := [attempt for attempt in self._running() if attempt.rollout is not None]:
                await self._check(opened)

    async def _check(self, attempts: list[Attempt]) -> None:
        ids = [one.lease.trajectory_id for one in attempts]
        try:
            renewed = await self._context.call(renew_keys, self._context, ids)
        except AccessRefusedError as error:
            for run in {one.lease.task.run for one in attempts}:
                await self._context.call(self._context.access.note, run, error)
            renewed = None
        for attempt in attempts:
            name = attempt.lease.trajectory_id
            if renewed is not None and name in renewed.quiet_seconds:
                waited_seconds, is_calling = renewed.waited_seconds.get(name, 0.0), name in renewed.calling
                attempt.record_activity(renewed.quiet_seconds[name], waited_seconds, is_calling=is_calling)
            await attempt.end_if_idle()

    def _seconds_between_checks(self) -> float:
        limits = [limit for one in self._running() if (limit := one.lease.task.limits.idle_seconds) is not None]
        shortest = min((limit / _CHECKS_PER_LIMIT for limit in limits), default=float("inf"))
        return min(shortest, self._context.settings.heartbeat_seconds)
