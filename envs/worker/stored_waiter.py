"""Waits until every call and record of a closed attempt is stored and indexed.

One loop polls for all attempts of a worker, outside of the slots in which agents run.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from redis.exceptions import RedisError

from agent_layer.errors import NotWholeError
from agent_layer.state import CallCount

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _PendingWait:
    trajectory_id: str
    num_calls: int
    logs: Collection[str]
    stored: asyncio.Future[None]


class StoredWaiter:
    """Polls the index for attempts that wait to be whole.

    Args:
        count: returns how many calls of a trajectory are stored.
        is_settled: whether all records of a log are stored.
        pool: threads in which both run.
        poll_seconds: interval of the polls while an attempt waits.
    """

    def __init__(
        self,
        count: Callable[[str], CallCount],
        is_settled: Callable[[str], bool],
        pool: Executor,
        *,
        poll_seconds: float,
    ) -> None:
        self._count = count
        self._is_settled = is_settled
        self._pool = pool
        self._poll_seconds = poll_seconds
        self._waiting: list[_PendingWait] = []
        self._has_waiting = asyncio.Event()

    async def wait_stored(self, trajectory_id: str, num_calls: int, logs: Collection[str], seconds: float) -> None:
        """Wait until the attempt's calls and all records of these logs are stored.

        Args:
            trajectory_id: the attempt, closed at its gateway.
            num_calls: calls that the gateway counted.
            logs: names of logs with records of the attempt.
            seconds: longest wait.

        Raises: NotWholeError: they are not stored in time.
        """
        waiting = _PendingWait(trajectory_id, num_calls, logs, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._has_waiting.set()
        try:
            async with asyncio.timeout(seconds):
                await waiting.stored
        except TimeoutError as error:
            raise NotWholeError(
                f"attempt {trajectory_id}: its {num_calls} calls and {len(logs)} logs were not all stored within"
                f" {seconds:g} s; see shipper.log; the attempt is retried"
            ) from error
        finally:
            self._waiting.remove(waiting)

    async def run(self) -> None:
        """Poll until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._has_waiting.wait()
            try:
                for waiting in await loop.run_in_executor(self._pool, self._find_stored, list(self._waiting)):
                    if not waiting.stored.done():
                        waiting.stored.set_result(None)
            except RedisError as error:
                _log.warning("sealing waits for redis error=%s", error)
            await asyncio.sleep(self._poll_seconds)
            if not self._waiting:
                self._has_waiting.clear()

    def _find_stored(self, waiting: Sequence[_PendingWait]) -> list[_PendingWait]:
        """Return the attempts that are whole. Logs come first: attempts share them, and they are cheap to check."""
        logs = {name for one in waiting for name in one.logs}
        unsettled = {name for name in logs if not self._is_settled(name)}
        return [one for one in waiting if unsettled.isdisjoint(one.logs) and self._has_all_calls(one)]

    def _has_all_calls(self, waiting: _PendingWait) -> bool:
        stored = self._count(waiting.trajectory_id)
        return waiting.num_calls <= stored.ended == stored.started
