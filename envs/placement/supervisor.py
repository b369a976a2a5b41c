"""Supervisor of workers: starts, restarts, drains and replaces them."""

import asyncio
import logging
import time
from collections.abc import Coroutine

from agent_layer.errors import AgentFailedError, AgentLayerError, BadInputError
from agent_layer.infra import Backoff, RestartHistory, RestartPolicy
from agent_layer.settings import Settings
from envs.placement.worker_handle import StartWorker, WorkerHandle, max_shutdown_seconds
from envs.worker import wait_within


class SupervisedWorker:
    """A started worker; it counts as running until ``exit`` is done."""

    def __init__(self, worker: WorkerHandle) -> None:
        self._worker = worker
        self._started_at = time.monotonic()
        self._is_draining = False
        self.name = worker.name
        self.exit = asyncio.create_task(worker.wait_exit())
        """Returns its exit status."""
        self.was_ready = False
        """Whether one of its heartbeats was answered."""

    @property
    def age_seconds(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self._started_at

    async def is_ready_within(self, seconds: float) -> bool:
        """Wait for its first heartbeat or its end."""
        if self.was_ready:
            return True
        waiting = asyncio.create_task(self._worker.wait_ready())
        await asyncio.wait({waiting, self.exit}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        self.was_ready = waiting.done() and waiting.exception() is None
        waiting.cancel()
        return self.was_ready

    async def drain(self, *, hurry: bool) -> None:
        """Ask it to drain, once; in a hurry, again, so that it returns its attempts to the queue at once."""
        if hurry or not self._is_draining:
            self._is_draining = True
            await self._worker.drain()

    async def kill(self) -> None:
        """Kill it."""
        await self._worker.kill()


_RESTARTS = RestartPolicy(healthy_seconds=60.0, backoff=Backoff(0.5, 30.0), max_unready=5)
_BAD_INPUT = 2
"""Exit status of a worker whose arguments or settings are wrong."""

_log = logging.getLogger(__name__)


class Supervisor:
    """Keeps a number of workers running, wherever they are placed.

    Args:
        start_worker: starts one more worker.
        num_workers: workers at a time; one more while one is replaced.
        settings: how long a worker may take to become ready and to end.
    """

    def __init__(self, start_worker: StartWorker, num_workers: int, settings: Settings) -> None:
        self._start_worker = start_worker
        self._settings = settings
        self._slots: list[SupervisedWorker | None] = [None] * num_workers
        """[num_workers]; None: not started yet, or ended for good."""
        self._changing = [asyncio.Lock() for _ in self._slots]
        """[num_workers]; held while a slot gets another worker."""
        self._running: set[SupervisedWorker] = set()
        """Includes workers that are being started or replaced."""
        self._endings: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._replace_requested = asyncio.Event()
        self._was_ready = False
        """Whether any worker ever became ready."""
        self._failure: AgentLayerError | None = None

    @property
    def num_running(self) -> int:
        """Workers that have not ended."""
        return len(self._running)

    def stop(self) -> None:
        """Drain all workers; a second call makes them return their attempts to the queue at once."""
        self._end_all(hurry=self._stopping.is_set())

    def replace(self) -> None:
        """Replace the workers one after another; a call during that replaces them once more."""
        self._replace_requested.set()

    async def run(self) -> None:
        """Keep workers running until ``stop``, or until each has ended with status 0.

        Raises: BadInputError, AgentFailedError: workers do not start.
        """
        replacing = asyncio.create_task(self._replace_on_signal())
        await asyncio.gather(*[self._supervise(slot) for slot in range(len(self._slots))])
        self._end_all()
        await replacing
        while self._endings:
            await asyncio.wait(self._endings)
        if self._failure is not None:
            raise self._failure

    async def _supervise(self, slot: int) -> None:
        """Keep a worker in this slot until one ends with status 0."""
        history = RestartHistory(_RESTARTS)
        while (worker := await self._ensure_worker(slot, history)) is not None:
            await self._is_ready(worker)
            status = await worker.exit
            async with self._changing[slot]:
                if self._slots[slot] is not worker:
                    continue  # it was replaced
                if status == 0:
                    self._slots[slot] = None
                    return
            if not self._stopping.is_set():
                history.record_exit(worker.age_seconds, was_ready=worker.was_ready)
                self._on_worker_exit(worker, status, history)

    async def _ensure_worker(self, slot: int, history: RestartHistory) -> SupervisedWorker | None:
        """Return the slot's worker, a new one if it has died; None: no more are started."""
        async with self._changing[slot]:
            worker = self._slots[slot]
            if worker is None or worker.exit.done():
                await wait_within(self._stopping, history.delay_seconds)
                worker = self._slots[slot] = None if self._stopping.is_set() else await self._start_one()
            return worker

    async def _start_one(self) -> SupervisedWorker:
        worker = SupervisedWorker(await self._start_worker())
        self._running.add(worker)
        worker.exit.add_done_callback(lambda _: self._running.discard(worker))
        if self._stopping.is_set():  # during the start
            self._run_ending(self._end(worker))
        return worker

    async def _is_ready(self, worker: SupervisedWorker) -> bool:
        """Wait for a worker's first heartbeat; False: it ended before, or was ended because there was none in time."""
        if not await worker.is_ready_within(self._settings.work_start_seconds):
            await self._end(worker)
        self._was_ready = self._was_ready or worker.was_ready
        return worker.was_ready

    def _on_worker_exit(self, worker: SupervisedWorker, status: int, history: RestartHistory) -> None:
        """Log that a worker has died, and stop if the next one would die as well."""
        _log.warning(
            "worker ended where=%s status=%d next_start_seconds=%g", worker.name, status, history.delay_seconds
        )
        if status == _BAD_INPUT and not self._was_ready:
            self._failure = BadInputError(
                "workers: one exited with status 2, its arguments or settings are wrong; correct what it reports above"
            )
        elif history.must_give_up:
            self._failure = AgentFailedError(
                f"workers: none became ready, {history.num_unready} in a row exited before their first heartbeat"
                f" (last status {status}); see their output above"
            )
        if self._failure is not None:
            self._end_all()

    async def _replace_on_signal(self) -> None:
        while not self._stopping.is_set():
            await self._replace_requested.wait()
            self._replace_requested.clear()
            for slot in range(len(self._slots)):
                if self._stopping.is_set() or not await self._replace_one(slot):
                    break

    async def _replace_one(self, slot: int) -> bool:
        """Start another worker, and drain the old one once the new one is ready; False: it does not start."""
        async with self._changing[slot]:
            old = self._slots[slot]
            if old is None:
                return True
            new = await self._start_one()
            if not await self._is_ready(new):
                _log.error("workers are not replaced, the new one ended before its first heartbeat; the old ones stay")
                return False
            self._slots[slot] = new
        await self._end(old)
        return True

    def _end_all(self, *, hurry: bool = False) -> None:
        self._stopping.set()
        self._replace_requested.set()
        for worker in list(self._running):
            self._run_ending(self._end(worker, hurry=hurry))

    async def _end(self, worker: SupervisedWorker, *, hurry: bool = False) -> None:
        """Drain a worker and wait for its end; kill it when it takes too long."""
        seconds = max_shutdown_seconds(self._settings)
        await worker.drain(hurry=hurry)
        await asyncio.wait({worker.exit}, timeout=seconds)
        if not worker.exit.done():
            _log.error("worker is killed, it did not end itself where=%s after_seconds=%g", worker.name, seconds)
            await worker.kill()
            await asyncio.wait({worker.exit}, timeout=seconds)

    def _run_ending(self, ending: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(ending)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
