"""What its waits for the disk add to an on-policy step, on the embedded server.

A step is submitted, leased, recorded, accepted, shipped, delivered and acknowledged by one thread, so that none of its
waits overlap. Rounds with and without waits go in turns. The floor: as many syncs of a line that is appended to a file.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from unittest.mock import patch

from bench_dispatch import shown_ms
from bench_table import Figure, print_figures

from agent_layer.dispatcher import Dispatcher, Report, WorkerQueue, connect
from agent_layer.infra import Keys, open_objects, open_redis
from agent_layer.infra.redis.durability import DurableWrites
from agent_layer.schema import AttemptStarted, Outcome, Task, encode, new_id
from agent_layer.settings import Settings
from agent_layer.shipper.direct import DirectDestination
from agent_layer.store import Store, open_store

__all__ = ["measure_dispatch_durable"]

NUM_ROUNDS, STEPS_PER_ROUND = 12, 10
NUM_GROUPS, GROUP_SIZE = 8, 8
RUN = "bench"


def measure_dispatch_durable(directory: Path) -> list[Figure]:
    """Take steps with and without waits, in turns."""
    line = _Line(Settings(dir=directory, run=RUN))
    waits, with_waits, without = list[list[float]](), list[float](), list[float]()
    line.step()
    for _ in range(NUM_ROUNDS):
        for _ in range(STEPS_PER_ROUND):
            with _timed_waits() as found:
                with_waits.append(_seconds(line.step))
            waits.append(found)
        with patch.object(DurableWrites, "wait", lambda *_: None):
            without += [_seconds(line.step) for _ in range(STEPS_PER_ROUND)]
    num = round(median(len(found) for found in waits))
    floor = [sum(_sync_lines(directory / "floor", num)) for _ in waits]
    added = [sum(found) for found in waits]
    print(f"  step: {shown_ms(with_waits)} ms with waits, {shown_ms(without)} ms without", file=sys.stderr)
    what = (
        f"dispatch, embedded server, on-policy step of {NUM_GROUPS} groups of {GROUP_SIZE}: {num} waits for the disk,"
        f" p50/p99 ms of {len(waits)} (floor: {num} syncs of an appended line)"
    )
    return [Figure(what, shown_ms(added), shown_ms(floor), f"{median(added) / median(floor):.1f}", "p50 ≤ 50 ms")]


class _Line:
    """Trainer, worker and shipper of one run."""

    def __init__(self, settings: Settings) -> None:
        redis, keys = open_redis(settings), Keys(settings.namespace)
        self._dispatcher: Dispatcher = connect(settings)
        self._queue = WorkerQueue(redis, keys, settings)
        self._destination = DirectDestination(keys, redis, open_objects(settings))
        self._store: Store = open_store(settings)
        self._num_steps = 0

    def step(self) -> None:
        self._num_steps += 1
        tasks = [Task(id=f"{one}", group_size=GROUP_SIZE, run=RUN) for one in range(NUM_GROUPS)]
        group_ids = self._dispatcher.submit(tasks, round=self._num_steps)
        leases = self._queue.claim("w", NUM_GROUPS * GROUP_SIZE)
        starts = [
            AttemptStarted(
                trajectory_id=one.trajectory_id, rollout_id=one.rollout_id, run=RUN, attempt=one.attempt,
                task_id=one.task.id, group_id=one.group_id, started_at=time.time(),
            )
            for one in leases
        ]  # fmt: skip
        ends = [
            Outcome(trajectory_id=one.trajectory_id, run=RUN, status="completed", ended_at=time.time(), num_calls=0)
            for one in leases
        ]
        self._destination.store(new_id(), [encode(one) for one in (*starts, *ends)])
        self._queue.settle([Report(lease=one, ending="completed") for one in leases])
        self._destination.ship_decisions()
        delivered = [one.group.group_id for one in self._store.follow("trainer", RUN, wait_seconds=0, max_unacked=None)]
        if sorted(delivered) != sorted(group_ids):
            raise RuntimeError(f"expected the groups {group_ids}, found {delivered}")
        self._store.acknowledge("trainer", RUN, delivered)


@contextmanager
def _timed_waits() -> Iterator[list[float]]:
    """Collect how many seconds each wait takes."""
    took, wait = list[float](), DurableWrites.wait

    def timed(*arguments: object) -> None:
        began = time.perf_counter()
        wait(*arguments)
        took.append(time.perf_counter() - began)

    with patch.object(DurableWrites, "wait", timed):
        yield took


def _seconds(act: Callable[[], None]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _sync_lines(path: Path, num: int) -> Iterator[float]:
    with path.open("ab", buffering=0) as file:
        for _ in range(num):
            began = time.perf_counter()
            file.write(b"one line\n")
            os.fsync(file.fileno())
            yield time.perf_counter() - began


if __name__ == "__main__":
    with TemporaryDirectory(prefix="al-bench-", ignore_cleanup_errors=True) as home:
        print_figures(measure_dispatch_durable(Path(home)))
