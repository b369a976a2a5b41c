"""taskiq as a contender: its Redis stream broker, the one that acknowledges.

Run as a program it submits; ``taskiq worker dispatch_taskiq:broker`` works. In the peers' environment.
"""

import asyncio
import os
import time

from dispatch_orders import serve_orders
from dispatch_tally import done
from taskiq_redis import RedisStreamBroker

_AT_ONCE = 100

broker = RedisStreamBroker(os.environ["BENCH_REDIS"])


@broker.task(task_name="noop")
async def noop(sent_at: float) -> None:
    """Do nothing but be counted."""
    done(sent_at)


async def _fill(num: int) -> None:
    for _ in range(0, num, _AT_ONCE):
        await asyncio.gather(*(noop.kiq(0.0) for _ in range(_AT_ONCE)))


async def _ask() -> None:
    await noop.kiq(time.monotonic())


if __name__ == "__main__":
    with asyncio.Runner() as loop:
        loop.run(broker.startup())
        serve_orders(lambda num: loop.run(_fill(num)), lambda: loop.run(_ask()))
