"""This file holds the watch over running attempts: their keys are renewed, and those that do nothing are ended."""

import asyncio
import time
from collections.abc import Callable, Collection

from envs.worker.attempt import Attempt
from envs.worker.context import WorkerContext
from envs.worker.rollouts import renew_keys

_LOOKS_PER_LIMIT = 4
"""An attempt is ended at the latest by this part of its limit too late."""
_TICK_SECONDS = 0.25


class LivenessMonitor:
    """Asks the gateway, as often as the shortest limit needs it and at least with every heartbeat.

    Args:
        place: where attempts are done.
        running: attempts whose agents run.
    """

    def __init__(self, place: WorkerContext, running: Callable[[], Collection[Attempt]]) -> None:
        self._place = place
        self._running = running

    async def run(self) -> None:
        """Watch until cancelled."""
        looked_at = time.monotonic()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            if time.monotonic() < looked_at + self._seconds_between_looks():
                continue
            looked_at = time.monotonic()
            if watched := [attempt for attempt in self._running() if attempt.rollout is not None]:
                await self._look(watched)

    async def _look(self, watched: list[Attempt]) -> None:
        signs = await self._place.call(renew_keys, self._place, [one.lease.trajectory_id for one in watched])
        for attempt in watched:
            name = attempt.lease.trajectory_id
            if signs is not None and name in signs.quiet_seconds:
                attempt.record_activity(signs.quiet_seconds[name], is_calling=name in signs.calling)
            attempt.end_if_idle()

    def _seconds_between_looks(self) -> float:
        limits = [limit for one in self._running() if (limit := one.lease.task.limits.idle_seconds) is not None]
        wanted = min((limit / _LOOKS_PER_LIMIT for limit in limits), default=float("inf"))
        return min(wanted, self._place.settings.heartbeat_seconds)
