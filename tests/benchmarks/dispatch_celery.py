"""Celery as a contender: it acknowledges late, so that another worker repeats a dead worker's tasks.

Run as a program it submits; ``celery -A dispatch_celery worker`` works. In the peers' environment.
"""

import os
import time

from celery import Celery
from dispatch_orders import serve_orders
from dispatch_tally import done

app = Celery("bench", broker=os.environ["BENCH_REDIS"])
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=64,  # as its guide advises for tasks that are over at once
)


@app.task(name="noop")
def noop(sent_at: float) -> None:
    """Do nothing but be counted."""
    done(sent_at)


def _fill(num: int) -> None:
    for _ in range(num):
        noop.delay(0.0)


if __name__ == "__main__":
    serve_orders(_fill, lambda: noop.delay(time.monotonic()) and None)
