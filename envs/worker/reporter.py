"""Settles reports in batches, so that results that arrive together cost one call to the dispatcher."""

import asyncio
import logging
from concurrent.futures import Executor

from redis.exceptions import RedisError

from agent_layer.dispatcher import Report, WorkerQueue
from agent_layer.errors import LeaseLostError

_RETRY_SECONDS = 1.0

_log = logging.getLogger(__name__)


class Reporter:
    """Settles one batch of reports while the next one gathers."""

    def __init__(self, queue: WorkerQueue, pool: Executor) -> None:
        self._queue = queue
        self._pool = pool
        self._reports: asyncio.Queue[tuple[Report, asyncio.Future[LeaseLostError | None]]] = asyncio.Queue()

    async def settle(self, report: Report) -> LeaseLostError | None:
        """Report how a lease ended; return why the report was refused, None when it was accepted."""
        answer: asyncio.Future[LeaseLostError | None] = asyncio.get_running_loop().create_future()
        self._reports.put_nowait((report, answer))
        return await answer

    async def run(self) -> None:
        """Settle reports until cancelled."""
        while True:
            batch = [await self._reports.get()]
            while not self._reports.empty():
                batch.append(self._reports.get_nowait())
            refusals = await self._settle_batch([report for report, _ in batch])
            for (_, answer), refusal in zip(batch, refusals, strict=True):
                if not answer.done():
                    answer.set_result(refusal)

    async def _settle_batch(self, reports: list[Report]) -> list[LeaseLostError | None]:  # kept: a loop in a loop
        """Retry until Redis answers; settling is idempotent."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await loop.run_in_executor(self._pool, self._queue.settle, reports)
            except RedisError as error:
                _log.warning("reports wait for redis error=%s", error)
                await asyncio.sleep(_RETRY_SECONDS)
