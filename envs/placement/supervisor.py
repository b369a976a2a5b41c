"""This file holds the supervisor: it keeps so many workers alive, drains them, and replaces them one after another.

This file holds one placed worker as its supervisor knows it, from its start to its end.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine

from agent_layer.errors import AgentFailedError, AgentLayerError, BadInputError
from agent_layer.infra.processes import Deaths
from agent_layer.settings import Settings
from envs.placement.worker_handle import StartWorker, WorkerHandle, longest_shutdown_seconds
from envs.worker import wait_within


class SupervisedWorker:
    """A worker that was placed; it counts as living until ``end`` is done."""

    def __init__(self, worker: WorkerHandle) -> None:
        self._worker = worker
        self._placed_at = time.monotonic()
        self._is_told = False
        self.name = worker.name
        self.end = asyncio.create_task(worker.ended())
        """Gives its exit status."""
        self.was_seen = False
        """Whether a heartbeat of it was answered."""

    @property
    def age_seconds(self) -> float:
        """Since it was placed."""
        return time.monotonic() - self._placed_at

    async def is_seen_within(self, seconds: float) -> bool:
        """Wait for its first heartbeat or its end."""
        if self.was_seen:
            return True
        seeing = asyncio.create_task(self._worker.seen())
        await asyncio.wait({seeing, self.end}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        self.was_seen = seeing.done() and seeing.exception() is None
        seeing.cancel()
        return self.was_seen

    async def drain(self, *, hurry: bool) -> None:
        """Tell it to end, once; in a hurry, a second time: it gives back at once what it runs."""
        if hurry or not self._is_told:
            self._is_told = True
            await self._worker.drain()

    async def kill(self) -> None:
        """End it although it does not end."""
        await self._worker.kill()


_BAD_INPUT = 2
"""Exit status of a worker that cannot start as it was told to."""

_log = logging.getLogger(__name__)


class Supervisor:
    """Keeps workers; wherever they are placed, they are told and watched in the same way.

    Args:
        place: starts one more worker.
        num_workers: how many there are at a time; while one is replaced, one more.
        settings: how long a worker may take to show itself and to end.
    """

    def __init__(self, place: StartWorker, num_workers: int, settings: Settings) -> None:
        self._place = place
        self._settings = settings
        self._slots: list[SupervisedWorker | None] = [None] * num_workers
        """[num_workers]; None: not yet, or none any more."""
        self._changing = [asyncio.Lock() for _ in self._slots]
        """[num_workers]; held while a slot gets another worker."""
        self._living: set[SupervisedWorker] = set()
        """Those that are being started or replaced, too."""
        self._endings: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._asked_to_replace = asyncio.Event()
        self._was_seen = False
        """Whether any worker ever was."""
        self._failure: AgentLayerError | None = None

    @property
    def num_living(self) -> int:
        """Workers that have not ended."""
        return len(self._living)

    def stop(self) -> None:
        """Drain all workers; called again, have them give back at once what they run."""
        self._end_all(hurry=self._stopping.is_set())

    def replace(self) -> None:
        """Replace the workers one after another; asked again meanwhile, do so once more."""
        self._asked_to_replace.set()

    async def run(self) -> None:
        """Keep workers until told to stop, or until each of them has ended because somebody told it to.

        Raises: BadInputError, AgentFailedError: workers do not start.
        """
        replacing = asyncio.create_task(self._replace_when_asked())
        await asyncio.gather(*[self._keep(slot) for slot in range(len(self._slots))])
        self._end_all()
        await replacing
        while self._endings:
            await asyncio.wait(self._endings)
        if self._failure is not None:
            raise self._failure

    async def _keep(self, slot: int) -> None:
        """See that this slot has a worker, until that ends with status 0."""
        deaths = Deaths()
        while (living := await self._worker_of(slot, deaths)) is not None:
            await self._is_seen(living)
            status = await living.end
            async with self._changing[slot]:
                if self._slots[slot] is not living:
                    continue  # it was replaced
                if status == 0:
                    self._slots[slot] = None
                    return
            if not self._stopping.is_set():
                deaths.note(was_seen=living.was_seen, lived_seconds=living.age_seconds)
                self._mourn(living, status, deaths)

    async def _worker_of(self, slot: int, deaths: Deaths) -> SupervisedWorker | None:
        """Give the slot's worker, a new one if it has died; None: none is to be started any more."""
        async with self._changing[slot]:
            living = self._slots[slot]
            if living is None or living.end.done():
                await wait_within(self._stopping, deaths.delay_seconds)
                living = self._slots[slot] = None if self._stopping.is_set() else await self._place_one()
            return living

    async def _place_one(self) -> SupervisedWorker:
        living = SupervisedWorker(await self._place())
        self._living.add(living)
        living.end.add_done_callback(lambda _: self._living.discard(living))
        if self._stopping.is_set():  # meanwhile
            self._begin(self._end(living))
        return living

    async def _is_seen(self, living: SupervisedWorker) -> bool:
        """Wait for a worker's first heartbeat; False: it has ended before, or was ended for want of one."""
        if not await living.is_seen_within(self._settings.work_start_seconds):
            await self._end(living)
        self._was_seen = self._was_seen or living.was_seen
        return living.was_seen

    def _mourn(self, living: SupervisedWorker, status: int, deaths: Deaths) -> None:
        """Say that a worker has died, and give up where the next would die as well."""
        _log.warning("worker ended where=%s status=%d next_start_seconds=%g", living.name, status, deaths.delay_seconds)
        if status == _BAD_INPUT and not self._was_seen:
            self._failure = BadInputError(
                "workers: expected them to start, found that one cannot (status 2); mend what it says above"
            )
        elif deaths.is_hopeless:
            self._failure = AgentFailedError(
                f"workers: expected one to show itself, found that {deaths.num_unseen} in a row have ended before"
                f" their first heartbeat, the last with status {status}; mend what they say above"
            )
        if self._failure is not None:
            self._end_all()

    async def _replace_when_asked(self) -> None:
        while not self._stopping.is_set():
            await self._asked_to_replace.wait()
            self._asked_to_replace.clear()
            for slot in range(len(self._slots)):
                if self._stopping.is_set() or not await self._replace_one(slot):
                    break

    async def _replace_one(self, slot: int) -> bool:
        """Start another, and only when it is seen, drain the one before; False: it does not start."""
        async with self._changing[slot]:
            old = self._slots[slot]
            if old is None:
                return True
            new = await self._place_one()
            if not await self._is_seen(new):
                _log.error("workers are not replaced, the new one ended before its first heartbeat; the old ones go on")
                return False
            self._slots[slot] = new
        await self._end(old)
        return True

    def _end_all(self, *, hurry: bool = False) -> None:
        self._stopping.set()
        self._asked_to_replace.set()
        for living in list(self._living):
            self._begin(self._end(living, hurry=hurry))

    async def _end(self, living: SupervisedWorker, *, hurry: bool = False) -> None:
        """Drain a worker and wait for its end; end it when it does not come."""
        seconds = longest_shutdown_seconds(self._settings)
        await living.drain(hurry=hurry)
        await asyncio.wait({living.end}, timeout=seconds)
        if not living.end.done():
            _log.error("worker is ended, it did not end itself where=%s after_seconds=%g", living.name, seconds)
            await living.kill()
            await asyncio.wait({living.end}, timeout=seconds)

    def _begin(self, ending: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(ending)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
