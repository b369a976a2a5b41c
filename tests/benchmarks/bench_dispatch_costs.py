"""What the queue costs Redis: a claim, a submission and a peek over the number of runs, and the longest script.

Measured is the processor time of the server, which a busy machine hardly changes. The floor is a queue of one sorted
set, filled by ZADD and emptied by ZPOPMIN, without runs, leases and groups.
"""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench_table import Figure
from dispatch_contenders import run_redis
from redis import Redis

from agent_layer.dispatcher import Dispatcher, Report, WorkerQueue
from agent_layer.infra import Keys, open_redis
from agent_layer.schema import Task, new_id
from agent_layer.settings import Settings
from agent_layer.store.index.deletion import apply_tombstones

__all__ = ["measure_dispatch_costs"]

NUM_RUNS = (1, 10, 100, 1_000, 10_000)
NUM_ACTS, NUM_WAITING = 100, 400
NUM_WAITERS, NUM_WAKES = 32, 10
NUM_WORKERS, SIZE, RUNS_OF_INDEX = 2_000, 4_096, 5_000


class Bench:
    """A queue of its own namespace, and the processor time that it takes its server."""

    def __init__(self, url: str, directory: Path) -> None:
        namespace = new_id()
        settings = Settings(dir=directory, redis_url=url, namespace=namespace, lease_seconds=3_600.0)
        self.redis, self.keys = open_redis(settings), Keys(namespace)
        self.queue, self.dispatcher = WorkerQueue(self.redis, self.keys, settings), Dispatcher(self.redis, settings)

    def measure_ms(self, act: Callable[[], object], times: int = 1) -> float:
        """Return the mean milliseconds of processor time that an act takes Redis."""
        before = _read_cpu(self.redis)
        for _ in range(times):
            act()
        return (_read_cpu(self.redis) - before) * 1_000 / times

    def measure_longest_ms(self, act: Callable[[], object]) -> float:
        """Return the longest of the scripts that an act runs, in milliseconds of processor time of Redis."""
        execute, took = self.redis.execute_command, list[float]()

        def execute_timed(*arguments: object, **options: object) -> object:
            if arguments[0] != "EVALSHA":
                return execute(*arguments, **options)
            before = _read_cpu(self.redis)
            answer = execute(*arguments, **options)
            took.append((_read_cpu(self.redis) - before) * 1_000)
            return answer

        setattr(self.redis, "execute_command", execute_timed)  # noqa: B010  # a method of one client
        act()
        setattr(self.redis, "execute_command", execute)  # noqa: B010
        return max(took)


def measure_dispatch_costs(directory: Path) -> list[Figure]:
    """Measure over runs, then waiters, then large steps."""
    with run_redis(directory) as url:
        with Redis.from_url(url) as redis:
            floor = _measure_floor(redis)
        rows = [_measure_runs(Bench(f"{url}/0", directory), num) for num in NUM_RUNS]
        for num, row in zip(NUM_RUNS, rows, strict=True):
            print(f"  {num} runs: {' '.join(f'{one} {ms:.3f}' for one, ms in row.items())}", file=sys.stderr)
        names = f"at {', '.join(map(str, NUM_RUNS))} runs"
        figures = [
            Figure(f"{act}, ms of Redis {names}", _show(costs), f"{floor:.4f}", f"{costs[-1] / costs[0]:.1f}", "flat")
            for act in rows[0]
            for costs in [[row[act] for row in rows]]
        ]
        wakes = _measure_wakes(Bench(f"{url}/0", directory))
        figures.append(
            Figure(f"claims a submission causes, of {NUM_WAITERS} waiters", f"{wakes:.1f}", "1", "", "1 to 2")
        )
        longest = _measure_large(Bench(f"{url}/0", directory))
    return [
        *figures,
        *(Figure(f"longest script, {act}: ms", f"{ms:.1f}", "", "", "≤ 5") for act, ms in longest.items()),
    ]


def _measure_runs(bench: Bench, num: int) -> dict[str, float]:
    tasks = [Task(id=f"{turn}-{at}", run=f"r{at}") for turn in range(NUM_WAITING // num + 1) for at in range(num)]
    bench.dispatcher.submit(tasks)
    acts: dict[str, Callable[[], object]] = {
        "claim": lambda: bench.queue.claim("w", 1),
        "add": lambda: bench.dispatcher.submit([Task(id=new_id(), run="r0")]),
        "peek": lambda: bench.queue.peek(4),
    }
    for act in acts.values():
        act()
    return {name: bench.measure_ms(act, NUM_ACTS) for name, act in acts.items()}


def _measure_floor(redis: Redis) -> float:
    before = _read_cpu(redis)
    for number in range(NUM_ACTS):
        pipeline = redis.pipeline(transaction=False)
        pipeline.zadd("floor", {str(number): number})
        pipeline.zpopmin("floor")
        pipeline.execute()
    return (_read_cpu(redis) - before) * 1_000 / NUM_ACTS


def _measure_wakes(bench: Bench) -> float:
    with ThreadPoolExecutor(NUM_WAITERS) as threads:
        claims = [threads.submit(bench.queue.claim, f"w{at}", 1, wait_seconds=10.0) for at in range(NUM_WAITERS)]
        time.sleep(0.5)
        looks = _count_scripts(bench.redis)
        time.sleep(1.0)
        looks = _count_scripts(bench.redis) - looks  # each waiter looks by itself once a second
        before, began = _count_scripts(bench.redis), time.monotonic()
        for number in range(NUM_WAKES):
            bench.dispatcher.submit([Task(id=str(number), run="r")])
        time.sleep(0.5)
        num = _count_scripts(bench.redis) - before - NUM_WAKES - looks * (time.monotonic() - began)
        bench.dispatcher.submit([Task(id=f"end-{at}", run="r") for at in range(NUM_WAITERS)])
        for claim in claims:
            claim.result()
    return num / NUM_WAKES


def _measure_large(bench: Bench) -> dict[str, float]:
    for at in range(NUM_WORKERS):
        bench.queue.heartbeat(f"w{at}", b"{}", [])
    pause = bench.measure_longest_ms(lambda: bench.dispatcher.pause("paused", running=True))
    add = bench.measure_longest_ms(
        lambda: bench.dispatcher.submit([Task(id="large", run="r", group_size=1, launch=SIZE)])
    )
    leases = [lease for _ in range(SIZE // 256) for lease in bench.queue.claim("w", 256)]
    report = Report(lease=leases[0], ending="completed")
    surplus = bench.measure_longest_ms(lambda: bench.queue.settle([report]))
    bench.redis.sadd(bench.keys.runs, *(f"run-{at}" for at in range(RUNS_OF_INDEX)))
    owners = [f"group:{at}" for at in range(64)]
    delete = bench.measure_longest_ms(lambda: apply_tombstones(bench.redis, bench.keys, owners, 1.0))
    return {
        f"group of {SIZE}": add,
        f"pause with {NUM_WORKERS} workers": pause,
        f"surplus of {SIZE}": surplus,
        f"deletion of 64 groups at {RUNS_OF_INDEX} runs": delete,
    }


def _read_cpu(redis: Redis) -> float:
    info = redis.info("cpu")
    return info["used_cpu_user"] + info["used_cpu_sys"]


def _count_scripts(redis: Redis) -> int:
    return redis.info("commandstats")["cmdstat_evalsha"]["calls"]


def _show(costs: list[float]) -> str:
    return " ".join(f"{ms:.3f}" for ms in costs)
