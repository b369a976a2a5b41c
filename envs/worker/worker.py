"""The worker: claims rollouts, runs their agents side by side, and reports how they ended.

Only running agents occupy slots; attempts that are scored or sealed wait beside them, up to a bound. Calls that block
(gateway, Redis, store) run in a few threads; claims and reports go in batches.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from redis.exceptions import RedisError

from agent_layer.dispatcher import Lease, LeaseAnswer, Report, WorkerQueue
from agent_layer.errors import AccessRefusedError, SandboxError, UnreachableError
from agent_layer.schema import JsonObject
from envs.worker.attempt import Attempt
from envs.worker.context import WorkerContext
from envs.worker.heartbeat import Heartbeat
from envs.worker.idle_limits import LivenessMonitor
from envs.worker.reporter import Reporter

_CLAIM_SECONDS = 1.0
"""Longest wait of one claim; bounds how long a stopping worker waits."""
_ACCESS_SECONDS = 2.0
"""Pause between two questions to a gateway that refuses this worker."""
_UNSEALED_PER_SLOT = 8
"""Attempts per slot that may wait to be stored; above that the worker claims nothing."""
_MAX_DELAY_SECONDS = 10.0
"""Longest delay between claims while the gateway opens nothing."""

_log = logging.getLogger(__name__)


class Worker:
    """One worker process.

    Args:
        queue: source of rollouts.
        context: what its attempts share.
        slots: agents that run at the same time.
        capabilities: needs of tasks that it can meet.
        run: claim only tasks of this run; empty: of any.
    """

    def __init__(
        self, queue: WorkerQueue, context: WorkerContext, *, slots: int, capabilities: Iterable[str] = (), run: str = ""
    ) -> None:
        self._queue = queue
        self._context = context
        self._slots = slots
        self._capabilities = list(capabilities)
        self._run = run
        self._has_requested_sandboxes = self._has_tried_sandboxes = False
        self._running: dict[str, Attempt] = {}
        """By lease token; their agents run."""
        self._finishing: dict[str, Attempt] = {}
        """By lease token; they are scored, sealed and reported."""
        self._ended: set[tuple[str, LeaseAnswer]] = set()
        """Lease tokens whose end is logged, and how: each heartbeat says so again."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        """Set: the worker claims nothing more."""
        self._returning = asyncio.Event()
        """Set: the worker no longer waits for running attempts."""
        self._slot_freed = asyncio.Event()
        self._delay_seconds = 0.0
        """Delay before the next claim; grows while the gateway opens nothing."""
        self.endings: Counter[str] = Counter()
        """Number of leases by how they ended; only accepted reports count."""
        self._reporter = Reporter(queue, context.pool)
        about: JsonObject = {"agent": context.agent, "slots": slots, "offers": " ".join(self._capabilities)}
        self._heartbeat = Heartbeat(queue, context.worker, about, self._on_lease_change, self._on_drain)
        self._loop = asyncio.get_running_loop()

    @property
    def name(self) -> str:
        """As leases show it."""
        return self._context.worker

    @property
    def num_running(self) -> int:
        """Attempts whose agents run."""
        return len(self._running)

    def drain(self, seconds: float) -> None:
        """Claim nothing more, let attempts run for this many seconds, then ``stop``."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._slot_freed.set()
            self._loop.call_later(seconds, self.stop)

    def stop(self) -> None:
        """Claim nothing more, return running attempts to the queue, and finish the others."""
        self._stopping.set()
        self._slot_freed.set()
        self._returning.set()

    async def check_access(self) -> None:
        """Raise AccessRefusedError where the gateway refuses this worker; one that does not answer is waited for."""
        try:
            await self._context.call(self._context.access.check)
        except AccessRefusedError:
            raise
        except (UnreachableError, RedisError) as error:
            _log.warning("the gateway is not asked whether it takes the key error=%s", error)

    async def work(self) -> None:
        """Work until ``drain`` or ``stop`` has ended every attempt."""
        self._heartbeat.start()
        try:
            async with asyncio.TaskGroup() as group:
                liveness = LivenessMonitor(self._context, self._running.values)
                background = (self._context.stored_waiter, self._reporter, liveness)
                services = [group.create_task(one.run()) for one in background]
                while not self._stopping.is_set():
                    num_beats = self._heartbeat.num_beats
                    leases = await self._claim()
                    for lease in leases:
                        self._start(lease, group)
                    if leases and self._heartbeat.num_beats != num_beats:
                        await self._context.call(self._heartbeat.catch_up, leases)
                    if self._num_free() == 0 or not leases:
                        await self._expect_sandboxes()
                await self._wait_for_attempts()
                await self._return_running()
                for service in services:
                    service.cancel()
        finally:
            await asyncio.to_thread(self._heartbeat.stop)
        with suppress(RedisError):  # after the last heartbeat, which would list the worker again
            await self._context.call(self._queue.leave, self._context.worker)

    async def _claim(self) -> list[Lease]:
        """Wait for a free slot, then claim one rollout per free slot; a single one while the gateway opens nothing."""
        if self._delay_seconds:
            await wait_within(self._stopping, self._delay_seconds)
            self._delay_seconds = min(2 * self._delay_seconds, _MAX_DELAY_SECONDS)
        if (free := self._num_free()) == 0:
            self._slot_freed.clear()
            await wait_within(self._slot_freed, _CLAIM_SECONDS)
            free = self._num_free()
        if free == 0 or self._stopping.is_set():
            return []
        if not await self._context.call(self._context.access.may_claim):
            await wait_within(self._stopping, _ACCESS_SECONDS)
            return []
        if self._has_requested_sandboxes:
            await self._offer_sandboxes()
        try:
            return await self._context.call(
                self._queue.claim,
                self._context.worker,
                1 if self._delay_seconds else free,
                self._capabilities,
                run=self._run,
                wait_seconds=_CLAIM_SECONDS,
                on_lack=None if self._has_tried_sandboxes else self._on_lack,
            )
        except RedisError as error:
            _log.warning("claiming waits for redis error=%s", error)
            await wait_within(self._stopping, _CLAIM_SECONDS)
            return []

    def _on_lack(self, _needs: list[str]) -> None:
        """In the thread of a claim: rollouts wait for sandboxes that were not tried on this host."""
        self._has_requested_sandboxes = True

    async def _offer_sandboxes(self) -> None:
        """Try once what kinds of sandbox work on this host, and offer them from now on."""
        self._has_requested_sandboxes = False
        try:
            offers = await self._context.sandboxes.supervisor.list_offers()
        except SandboxError as error:  # the next claim asks again
            _log.warning("sandboxes are not offered error=%s", error)
            return
        self._has_tried_sandboxes = True
        self._capabilities = sorted({*self._capabilities, *offers})
        await self._context.call(self._heartbeat.announce, offers=" ".join(self._capabilities))

    async def _expect_sandboxes(self) -> None:
        """Have boxes ready for what the queue holds for this worker next; none once nothing waits there."""
        sandboxes = self._context.sandboxes
        if not sandboxes.supervisor.is_running:
            return
        with suppress(RedisError):  # claims say so
            peek = self._queue.peek
            upcoming = await self._context.call(peek, self._slots, self._capabilities, run=self._run)
            sandboxes.expect(upcoming)

    def _num_free(self) -> int:
        """Number of rollouts that the worker may claim now."""
        if not self._context.recorder.has_room():
            return 0
        num_unsealed = self._slots * _UNSEALED_PER_SLOT - len(self._finishing)
        return max(0, min(self._slots - len(self._running), num_unsealed))

    def _start(self, lease: Lease, group: asyncio.TaskGroup) -> None:
        attempt = Attempt(self._context.complete_lease(lease), self._context, self._heartbeat.hold_lease)
        self._running[lease.token] = attempt
        self._heartbeat.hold_lease(lease, "running")
        task = group.create_task(self._run_attempt(attempt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_attempt(self, attempt: Attempt) -> None:
        """Run one attempt from its lease to its report."""
        token = attempt.lease.token
        try:
            await attempt.run()
            if attempt.rollout is not None:
                self._delay_seconds = 0.0
            elif attempt.is_turned_away and self._delay_seconds == 0.0:  # back off while the gateway opens nothing
                self._delay_seconds = self._queue.settings.retry_base_seconds
            self._finishing[token] = self._running.pop(token)
            self._slot_freed.set()
            report = await attempt.finish()
            if report is None or await self._report(report):
                await attempt.clear()
        finally:
            self._running.pop(token, None)
            self._finishing.pop(token, None)
            self._slot_freed.set()
            self._heartbeat.drop_lease(attempt.lease)
            self._ended -= {(token, "cancel"), (token, "lost")}

    async def _report(self, report: Report) -> bool:
        """Report how a lease ended; whether the report was accepted."""
        report = self._queue.mask_keys(report)
        refusal = await self._reporter.settle(report)
        if refusal is not None:
            _log.warning("report refused error=%s", refusal)
            return False
        self.endings[report.ending] += 1
        if report.error:
            _log.warning("attempt failed trajectory=%s error=%s", report.lease.trajectory_id, report.error)
        return True

    def _on_lease_change(self, lease: Lease, beat: LeaseAnswer) -> None:
        """In the heartbeat's thread: end an attempt whose lease is cancelled or lost, or pause it."""
        attempt = self._running.get(lease.token) or self._finishing.get(lease.token)
        if attempt is None:
            return
        if beat in ("cancel", "lost"):
            if (lease.token, beat) not in self._ended:
                self._ended.add((lease.token, beat))
                _log.warning("lease ended trajectory=%s why=%s", lease.trajectory_id, beat)
            self._loop.call_soon_threadsafe(attempt.stop, beat)
        elif beat == "pause":
            self._loop.call_soon_threadsafe(attempt.request_pause)

    def _on_drain(self) -> None:
        """In the heartbeat's thread: an operator asked this worker to drain."""
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(self.drain, self._queue.settings.work_drain_seconds)

    async def _wait_for_attempts(self) -> None:
        """Wait until all attempts have ended, or ``stop`` returns them to the queue."""
        if not self._tasks or self._returning.is_set():
            return
        returning = asyncio.create_task(self._returning.wait())
        announcing = asyncio.create_task(self._context.call(self._heartbeat.announce, draining="yes"))
        await asyncio.wait({announcing, returning}, return_when=asyncio.FIRST_COMPLETED)
        while self._tasks and not self._returning.is_set():
            await asyncio.wait({*self._tasks, returning}, return_when=asyncio.FIRST_COMPLETED)
        for task in (returning, announcing):
            task.cancel()

    async def _return_running(self) -> None:
        """Return running attempts to the queue, resumable ones at their next boundary, and late ones at the end."""
        seconds = self._queue.settings.stop_seconds
        for attempt in self._running.values():
            if not attempt.request_pause():
                attempt.stop("drain")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds / 2)
        for attempt in self._running.values():  # these reached no boundary
            attempt.stop("drain")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds / 2)
        late = [*self._running.values(), *self._finishing.values()]
        for task in self._tasks:
            task.cancel()
        for attempt in late:
            attempt.abandon()
        reports = [Report(lease=one.lease, ending="release", error="infra: the worker stopped") for one in late]
        with suppress(RedisError):  # the leases expire
            await self._context.call(self._queue.settle, reports)


async def wait_within(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, at most this long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
