"""This file holds the worker: it claims rollouts, runs their agents side by side, and reports what became of them.

Only running agents take up slots; attempts that are scored or sealed wait beside them, up to a bound. Everything that
blocks (gateway, Redis, store) runs in a few threads; claims and reports go in batches.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from agent_layer.dispatcher import Lease, Queue, Report
from agent_layer.dispatcher.records import Beat
from agent_layer.schema.record import JsonObject
from envs.attempt import Attempt
from envs.heartbeat import Heartbeat
from envs.reporting import Reporter
from envs.workplace import Workplace, renew_keys

__all__ = ["Worker"]

_CLAIM_SECONDS = 1.0
"""Longest wait of one claim, so that a worker that is told to stop does not hold on."""
_UNSEALED_PER_SLOT = 8
"""Attempts that may wait to be stored, for each slot; above that nothing is claimed."""
_LONGEST_PAUSE_SECONDS = 10.0
"""Between claims while the gateway opens nothing."""

_log = logging.getLogger(__name__)


class Worker:
    """One worker process.

    Args:
        queue: where rollouts come from.
        place: where attempts are done.
        slots: agents that run at the same time.
        capabilities: what tasks may need of it.
        run: only tasks of this run; empty: of any.
    """

    def __init__(
        self, queue: Queue, place: Workplace, *, slots: int, capabilities: Iterable[str] = (), run: str = ""
    ) -> None:
        self._queue = queue
        self._place = place
        self._slots = slots
        self._capabilities = list(capabilities)
        self._run = run
        self._running: dict[str, Attempt] = {}
        """By token; their agents run."""
        self._finishing: dict[str, Attempt] = {}
        """By token; they are scored, sealed and reported."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._slot_freed = asyncio.Event()
        self._pause_seconds = 0.0
        """Before the next claim; grows while the gateway opens nothing."""
        self._reporter = Reporter(queue, place.pool)
        about: JsonObject = {"agent": place.agent, "slots": slots, "offers": " ".join(self._capabilities)}
        self._heartbeat = Heartbeat(queue, place.worker, about, self._pass_on, self._renew_keys)
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """Claim nothing more, give back what runs, and finish what has run."""
        self._stopping.set()
        self._slot_freed.set()

    async def work(self) -> None:
        """Work until told to stop."""
        self._heartbeat.start()
        try:
            async with asyncio.TaskGroup() as group:
                services = [group.create_task(self._place.sealing.run()), group.create_task(self._reporter.run())]
                while not self._stopping.is_set():
                    for lease in await self._claim():
                        self._start(lease, group)
                await self._drain()
                for service in services:
                    service.cancel()
        finally:
            await asyncio.to_thread(self._heartbeat.stop)

    async def _claim(self) -> list[Lease]:
        """Ask for as many rollouts as there are free slots, after waiting for one; while turned away, for one."""
        if self._pause_seconds:
            await _wait(self._stopping, self._pause_seconds)
            self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)
        if (free := self._num_free()) == 0:
            self._slot_freed.clear()
            await _wait(self._slot_freed, _CLAIM_SECONDS)
            free = self._num_free()
        if free == 0 or self._stopping.is_set():
            return []
        try:
            return await self._place.call(
                self._queue.claim,
                self._place.worker,
                1 if self._pause_seconds else free,
                self._capabilities,
                run=self._run,
                wait_seconds=_CLAIM_SECONDS,
            )
        except RedisError as error:
            _log.warning("claiming waits for redis error=%s", error)
            await _wait(self._stopping, _CLAIM_SECONDS)
            return []

    def _num_free(self) -> int:
        """Leases that may be asked for now."""
        if not self._place.recorder.has_room():
            return 0
        num_unsealed = self._slots * _UNSEALED_PER_SLOT - len(self._finishing)
        return max(0, min(self._slots - len(self._running), num_unsealed))

    def _start(self, lease: Lease, group: asyncio.TaskGroup) -> None:
        attempt = Attempt(lease, self._place, self._heartbeat.keep)
        self._running[lease.token] = attempt
        task = group.create_task(self._see_through(attempt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _see_through(self, attempt: Attempt) -> None:
        """Take one attempt from its lease to its report."""
        token = attempt.lease.token
        try:
            await attempt.run()
            self._note_opening(attempt)
            self._finishing[token] = self._running.pop(token)
            self._slot_freed.set()
            if (report := await attempt.finish()) is not None:
                await self._report(report)
        finally:
            self._running.pop(token, None)
            self._finishing.pop(token, None)
            self._slot_freed.set()
            self._heartbeat.drop(attempt.lease)

    async def _report(self, report: Report) -> None:
        refusal = await self._reporter.settle(report)
        if refusal is not None:
            _log.warning("report refused error=%s", refusal)
        elif report.error:
            _log.warning("attempt failed trajectory=%s error=%s", report.lease.trajectory_id, report.error)

    def _note_opening(self, attempt: Attempt) -> None:
        """A gateway that is away is not hammered."""
        if attempt.rollout is not None:
            self._pause_seconds = 0.0
        elif attempt.is_turned_away and self._pause_seconds == 0.0:
            self._pause_seconds = self._queue.settings.retry_base_seconds

    def _pass_on(self, lease: Lease, beat: Beat) -> None:
        """From the heartbeat's thread: end an attempt whose lease does not hold any more."""
        attempt = self._running.get(lease.token) or self._finishing.get(lease.token)
        if attempt is not None and beat != "go":
            _log.warning("lease ended trajectory=%s why=%s", lease.trajectory_id, beat)
            self._loop.call_soon_threadsafe(attempt.stop, beat)

    def _renew_keys(self, trajectory_ids: Sequence[str]) -> None:
        """From the heartbeat's thread, which no gateway may hold up."""
        self._place.pool.submit(renew_keys, self._place, trajectory_ids)

    async def _drain(self) -> None:
        """Give back what runs at once, and later what could not be stored in time."""
        for attempt in self._running.values():
            attempt.stop("drain")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._queue.settings.stop_seconds)
        late = [attempt.lease for attempt in (*self._running.values(), *self._finishing.values())]
        for task in self._tasks:
            task.cancel()
        reports = [Report(lease=lease, ending="release", error="infra: the worker stopped") for lease in late]
        with suppress(RedisError):  # the leases lapse by themselves
            await self._place.call(self._queue.settle, reports)
            await self._place.call(self._queue.leave, self._place.worker)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, not longer than that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
