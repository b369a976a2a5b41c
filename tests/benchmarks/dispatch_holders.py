"""Processes that hold leases: many workers in one process, or one worker that the benchmark kills.

``dispatch_holders.py keep NUM_WORKERS NUM_LEASES`` keeps NUM_LEASES for each worker until its standard input closes,
then prints how many were lost. ``dispatch_holders.py lease`` acquires one lease, keeps it, and writes down the time.
``dispatch_holders.py take NUM`` acquires NUM leases as they come, and writes down each time. All of run ``held``.
"""

import os
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from agent_layer.dispatcher import Lease, Report, WorkerQueue
from agent_layer.infra import Keys, open_redis
from agent_layer.settings import load_settings

RUN = "held"
_WAIT_SECONDS = 5.0


def keep(queue: WorkerQueue, num_workers: int, num_leases: int) -> None:
    """Hold the leases of all workers, each with its own beat, then end them."""
    ended = Event()
    with ThreadPoolExecutor(num_workers) as threads:
        held = list(threads.map(lambda number: _claim(queue, f"holder-{number}", num_leases), range(num_workers)))
        beats = [threads.submit(_beat, queue, f"holder-{number}", leases, ended) for number, leases in enumerate(held)]
        print(sum(map(len, held)), flush=True)
        sys.stdin.read()
        ended.set()
    for beat in beats:
        beat.result()
    refused = [
        one for leases in held for one in queue.settle([Report(lease=one, ending="completed") for one in leases])
    ]
    print(sum(one is not None for one in refused), flush=True)


def _claim(queue: WorkerQueue, worker: str, num: int) -> list[Lease]:
    leases = list[Lease]()
    while len(leases) < num:
        if not (found := queue.claim(worker, num - len(leases), run=RUN, wait_seconds=_WAIT_SECONDS)):
            raise RuntimeError(f"{worker}: expected {num} rollouts to claim, found {len(leases)}")
        leases += found
    return leases


def _beat(queue: WorkerQueue, worker: str, leases: Sequence[Lease], ended: Event) -> None:
    """LeaseAnswer as often as a worker does, at a time of its own."""
    beats = [(lease, "running") for lease in leases]
    wait = random.random() * queue.settings.heartbeat_seconds
    while not ended.wait(wait):
        queue.heartbeat(worker, b"{}", beats)
        wait = queue.settings.heartbeat_seconds


def take(queue: WorkerQueue, num: int) -> None:
    """Acquire ``num`` leases one by one, and print the time of each."""
    worker = f"taker-{os.getpid()}"
    for _ in range(num):
        while not (found := queue.claim(worker, 1, run=RUN, wait_seconds=_WAIT_SECONDS)):
            pass
        print(time.monotonic(), found[0].rollout_id, flush=True)


def main(arguments: list[str]) -> None:
    """Do one of the three."""
    settings = load_settings()
    queue = WorkerQueue(open_redis(settings), Keys(settings.namespace), settings)
    match arguments:
        case ["keep", num_workers, num_leases]:
            keep(queue, int(num_workers), int(num_leases))
        case ["take", num]:
            take(queue, int(num))
        case _:
            worker = f"mortal-{os.getpid()}"
            leases = _claim(queue, worker, 1)
            queue.heartbeat(worker, b"{}", [(leases[0], "running")])
            print(time.monotonic(), leases[0].rollout_id, flush=True)
            _beat(queue, worker, leases, Event())


if __name__ == "__main__":
    main(sys.argv[1:])
