"""This file holds the worker: it claims rollouts, runs their agents side by side, and reports what became of them.

Only running agents take up slots; attempts that are scored or sealed wait beside them, up to a bound.
Everything that
blocks (gateway, Redis, store) runs in a few threads; claims and reports go in batches.

This file holds how something is waited for, and no longer than a limit.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from redis.exceptions import RedisError

from agent_layer.dispatcher import Beat, Lease, Queue, Report
from agent_layer.schema import JsonObject
from envs.worker.attempt import Attempt
from envs.worker.context import WorkerContext
from envs.worker.heartbeat import Heartbeat
from envs.worker.liveness import LivenessMonitor
from envs.worker.reporting import Reporter


async def wait_within(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event; return also when the time is up."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


_CLAIM_SECONDS = 1.0
"""Longest wait of one claim, so that a worker that is told to stop does not hold on."""
_UNSEALED_PER_SLOT = 8
"""Attempts that may wait to be stored, for each slot; above that nothing is claimed."""
_LONGEST_DELAY_SECONDS = 10.0
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
        self, queue: Queue, place: WorkerContext, *, slots: int, capabilities: Iterable[str] = (), run: str = ""
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
        """Set: nothing is claimed any more."""
        self._giving_back = asyncio.Event()
        """Set: what runs is not waited for any more."""
        self._slot_freed = asyncio.Event()
        self._delay_seconds = 0.0
        """Before the next claim; grows while the gateway opens nothing."""
        self.endings: Counter[str] = Counter()
        """How many leases ended how, of those whose reports were taken."""
        self._reporter = Reporter(queue, place.pool)
        about: JsonObject = {"agent": place.agent, "slots": slots, "offers": " ".join(self._capabilities)}
        self._heartbeat = Heartbeat(queue, place.worker, about, self._pass_on, self._told_to_drain)
        self._loop = asyncio.get_running_loop()

    @property
    def name(self) -> str:
        """As leases show it."""
        return self._place.worker

    @property
    def num_running(self) -> int:
        """Attempts whose agents run."""
        return len(self._running)

    def drain(self, seconds: float) -> None:
        """Claim nothing more, let what runs go on for so long, then ``stop``."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._slot_freed.set()
            self._loop.call_later(seconds, self.stop)

    def stop(self) -> None:
        """Claim nothing more, give back what runs, and finish what has run."""
        self._stopping.set()
        self._slot_freed.set()
        self._giving_back.set()

    async def work(self) -> None:
        """Work until told to stop."""
        self._heartbeat.start()
        try:
            async with asyncio.TaskGroup() as group:
                watch = LivenessMonitor(self._place, self._running.values)
                services = [group.create_task(one.run()) for one in (self._place.sealing, self._reporter, watch)]
                while not self._stopping.is_set():
                    for lease in await self._claim():
                        self._start(lease, group)
                await self._let_finish()
                await self._give_back()
                for service in services:
                    service.cancel()
        finally:
            await asyncio.to_thread(self._heartbeat.stop)
        with suppress(RedisError):  # after the last heartbeat, which would show the worker again
            await self._place.call(self._queue.leave, self._place.worker)

    async def _claim(self) -> list[Lease]:
        """Ask for as many rollouts as there are free slots, after waiting for one; while turned away, for one."""
        if self._delay_seconds:
            await wait_within(self._stopping, self._delay_seconds)
            self._delay_seconds = min(2 * self._delay_seconds, _LONGEST_DELAY_SECONDS)
        if (free := self._num_free()) == 0:
            self._slot_freed.clear()
            await wait_within(self._slot_freed, _CLAIM_SECONDS)
            free = self._num_free()
        if free == 0 or self._stopping.is_set():
            return []
        try:
            return await self._place.call(
                self._queue.claim,
                self._place.worker,
                1 if self._delay_seconds else free,
                self._capabilities,
                run=self._run,
                wait_seconds=_CLAIM_SECONDS,
            )
        except RedisError as error:
            _log.warning("claiming waits for redis error=%s", error)
            await wait_within(self._stopping, _CLAIM_SECONDS)
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
            report = await attempt.finish()
            if report is None or await self._report(report):
                await attempt.clear()
        finally:
            self._running.pop(token, None)
            self._finishing.pop(token, None)
            self._slot_freed.set()
            self._heartbeat.drop(attempt.lease)

    async def _report(self, report: Report) -> bool:
        """Say how a lease ended; whether that was taken."""
        refusal = await self._reporter.settle(report)
        if refusal is not None:
            _log.warning("report refused error=%s", refusal)
            return False
        self.endings[report.ending] += 1
        if report.error:
            _log.warning("attempt failed trajectory=%s error=%s", report.lease.trajectory_id, report.error)
        return True

    def _note_opening(self, attempt: Attempt) -> None:
        """A gateway that is away is not hammered."""
        if attempt.rollout is not None:
            self._delay_seconds = 0.0
        elif attempt.is_turned_away and self._delay_seconds == 0.0:
            self._delay_seconds = self._queue.settings.retry_base_seconds

    def _pass_on(self, lease: Lease, beat: Beat) -> None:
        """From the heartbeat's thread: end an attempt whose lease does not hold any more, or have it pause."""
        attempt = self._running.get(lease.token) or self._finishing.get(lease.token)
        if attempt is None:
            return
        if beat in ("cancel", "lost"):
            _log.warning("lease ended trajectory=%s why=%s", lease.trajectory_id, beat)
            self._loop.call_soon_threadsafe(attempt.stop, beat)
        elif beat == "pause":
            self._loop.call_soon_threadsafe(attempt.pause)

    def _told_to_drain(self) -> None:
        """From the heartbeat's thread: somebody wants this worker to end."""
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(self.drain, self._queue.settings.work_drain_seconds)

    async def _let_finish(self) -> None:
        """Wait until nothing is left to do, or what runs is to be given back."""
        if not self._tasks or self._giving_back.is_set():
            return
        given_back = asyncio.create_task(self._giving_back.wait())
        telling = asyncio.create_task(self._place.call(self._heartbeat.tell, draining="yes"))
        await asyncio.wait({telling, given_back}, return_when=asyncio.FIRST_COMPLETED)
        while self._tasks and not self._giving_back.is_set():
            await asyncio.wait({*self._tasks, given_back}, return_when=asyncio.FIRST_COMPLETED)
        for task in (given_back, telling):
            task.cancel()

    async def _give_back(self) -> None:
        """Give back what runs, what is resumable at its next boundary; and later what could not be stored in time."""
        seconds = self._queue.settings.stop_seconds
        for attempt in self._running.values():
            if not attempt.pause():
                attempt.stop("drain")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds / 2)
        for attempt in self._running.values():  # that came to no boundary
            attempt.stop("drain")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds / 2)
        late = [*self._running.values(), *self._finishing.values()]
        for task in self._tasks:
            task.cancel()
        for attempt in late:
            attempt.give_up()
        reports = [Report(lease=one.lease, ending="release", error="infra: the worker stopped") for one in late]
        with suppress(RedisError):  # the leases lapse by themselves
            await self._place.call(self._queue.settle, reports)
