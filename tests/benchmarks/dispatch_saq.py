"""saq as a contender; its sweep retries the jobs of a dead worker.

Run as a program it submits; ``saq dispatch_saq.settings`` works. In the peers' environment.
"""

import asyncio
import os
import time

from dispatch_orders import serve_orders
from dispatch_tally import done
from redis.asyncio import Redis
from saq.queue.redis import RedisQueue

_AT_ONCE = 100
_JOB = {"retries": 3, "ttl": -1}
"""Retried, and deleted once done: the benchmark reads no results."""

queue = RedisQueue(Redis.from_url(os.environ["BENCH_REDIS"], socket_timeout=None))
"""Without the client's own limit of 5 s: it waits for a job without end, and one that comes at the limit is lost."""


async def noop(_: object, *, sent_at: float) -> None:
    """Do nothing but be counted."""
    done(sent_at)


settings = {"queue": queue, "functions": [noop], "concurrency": 16}


async def _fill(num: int) -> None:
    for _ in range(0, num, _AT_ONCE):
        await asyncio.gather(*(queue.enqueue("noop", sent_at=0.0, **_JOB) for _ in range(_AT_ONCE)))


async def _ask() -> None:
    await queue.enqueue("noop", sent_at=time.monotonic(), **_JOB)


if __name__ == "__main__":
    with asyncio.Runner() as loop:
        loop.run(queue.connect())
        serve_orders(lambda num: loop.run(_fill(num)), lambda: loop.run(_ask()))
