"""Ray's actor calls as a contender; they need no Redis, and the caller keeps track of pending calls.

``dispatch_ray.py NUM_WORKERS NUM_ROUNDS SECONDS NUM_ASKED`` prints, as JSON, calls per second of each round and the
delays of single calls. Ray retries the calls of a dead actor while the caller runs. In the peers' environment.
"""

import json
import random
import sys
import time
from typing import Any

import ray

_IN_FLIGHT = 1000
_PAUSE_SECONDS = (0.01, 0.03)


@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class Worker:
    """One process that does nothing."""

    def noop(self) -> None:
        """Do it."""

    def wait(self, sent_at: float) -> float:
        """Return the seconds since the call was sent."""
        return time.monotonic() - sent_at


def _rate(workers: list, seconds: float) -> float:
    """Keep ``_IN_FLIGHT`` calls pending for ``seconds``, in turns; return calls per second."""
    began, num_done, turn = time.monotonic(), 0, 0
    waiting = []
    while time.monotonic() - began < seconds:
        while len(waiting) < _IN_FLIGHT:
            waiting.append(workers[turn % len(workers)].noop.remote())
            turn += 1
        ray.get(waiting[: _IN_FLIGHT // 2])
        del waiting[: _IN_FLIGHT // 2]
        num_done += _IN_FLIGHT // 2
    rate = num_done / (time.monotonic() - began)
    ray.get(waiting)
    return rate


def _waits(worker: Any, num: int) -> list[float]:
    waits = []
    for _ in range(num):
        time.sleep(random.uniform(*_PAUSE_SECONDS))
        waits.append(ray.get(worker.wait.remote(time.monotonic())))
    return waits


def main(arguments: list[str]) -> None:
    """Measure on a Ray of our own, with a round before that does not count."""
    num_workers, num_rounds, seconds, num_asked = int(arguments[0]), int(arguments[1]), *map(float, arguments[2:])
    ray.init("local", include_dashboard=False, num_cpus=2, log_to_driver=False, logging_level="error")
    workers = [Worker.remote() for _ in range(num_workers)]
    ray.get([worker.noop.remote() for worker in workers])
    rates = [_rate(workers, seconds) for _ in range(num_rounds + 1)][1:]
    waits = _waits(workers[0], int(num_asked)) if num_asked else []
    ray.shutdown()
    print(json.dumps({"rates": rates, "waits": waits}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
