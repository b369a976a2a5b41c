"""This file holds how results are told: those that come together are settled together."""

import asyncio
import logging
from concurrent.futures import Executor

from redis.exceptions import RedisError

from agent_layer.dispatcher import Queue, Report
from agent_layer.errors import LeaseLostError

_RETRY_SECONDS = 1.0

_log = logging.getLogger(__name__)


class Reporter:
    """Settles reports in batches: while one batch is on its way, the next gathers."""

    def __init__(self, queue: Queue, pool: Executor) -> None:
        self._queue = queue
        self._pool = pool
        self._reports: asyncio.Queue[tuple[Report, asyncio.Future[LeaseLostError | None]]] = asyncio.Queue()

    async def settle(self, report: Report) -> LeaseLostError | None:
        """Say how a lease ended; None when that was taken."""
        answer: asyncio.Future[LeaseLostError | None] = asyncio.get_running_loop().create_future()
        self._reports.put_nowait((report, answer))
        return await answer

    async def run(self) -> None:
        """Settle what is reported until cancelled."""
        while True:
            batch = [await self._reports.get()]
            while not self._reports.empty():
                batch.append(self._reports.get_nowait())
            refusals = await self._settle([report for report, _ in batch])
            for (_, answer), refusal in zip(batch, refusals, strict=True):
                if not answer.done():
                    answer.set_result(refusal)

    async def _settle(self, reports: list[Report]) -> list[LeaseLostError | None]:
        """Say it until it is heard; saying it twice does no harm."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await loop.run_in_executor(self._pool, self._queue.settle, reports)
            except RedisError as error:
                _log.warning("reports wait for redis error=%s", error)
                await asyncio.sleep(_RETRY_SECONDS)
