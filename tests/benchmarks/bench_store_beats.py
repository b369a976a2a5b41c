"""Delay of workers' heartbeats while segments of 8 MB enter the index of the same Redis.

Heartbeats are sent at fixed times, whatever the fate of earlier ones, and timed from when they were due. A client that
waits for a slow answer before its next request would miss the delay of all the others.
"""

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median, quantiles

from bench_table import Figure
from store_facts import make_facts
from store_servers import run_servers
from store_workload import make_appends

from agent_layer.dispatcher import WorkerQueue, connect
from agent_layer.infra import Keys, open_redis
from agent_layer.recorder import Recorder
from agent_layer.recorder.shipping import ensure_shipper
from agent_layer.schema.task import Task
from agent_layer.settings import Settings

__all__ = ["measure_store_beats"]

NUM_TRAJECTORIES, NUM_STEPS = 4_000, 8
BEATS_PER_SECOND, NUM_LEASES = 200, 8
CALM_SECONDS, MAX_SECONDS = 5.0, 120.0
LOG_BYTES = 8 << 20


def measure_store_beats(directory: Path, num_trajectories: int = NUM_TRAJECTORIES) -> list[Figure]:
    """LeaseAnswer while nothing else happens, then while logs of 8 MB that lie ready are shipped."""
    with run_servers(directory) as servers, ProcessPoolExecutor(1, get_context("spawn")) as processes:
        settings = servers.settings(directory / "store").model_copy(update={"log_roll_bytes": LOG_BYTES})
        recorder = _write_logs(settings, num_trajectories)
        stop = directory / "stop"
        calm = _beat_while(processes, settings, stop, lambda: time.sleep(CALM_SECONDS))
        busy = _beat_while(processes, settings, stop, lambda: _ship(settings, recorder))
    what = f"store, heartbeats of workers while 8 MB segments commit: p50/p99 ms of {len(busy)} (floor: nothing else)"
    return [Figure(what, _shown(busy), _shown(calm), "", "p99 ≤ 20 ms")]


def _write_logs(settings: Settings, num_trajectories: int) -> Recorder:
    """Write logs without a shipper."""
    recorder = Recorder(settings.model_copy(update={"log_roll_seconds": 3_600.0}))
    for number in range(num_trajectories):
        for records in make_appends(make_facts(number, NUM_STEPS)):
            recorder.append(*records)
    return recorder


def _ship(settings: Settings, recorder: Recorder) -> None:
    ensure_shipper(settings)
    began = time.perf_counter()
    report = recorder.flush(MAX_SECONDS)
    if report.pending:
        raise RuntimeError(f"expected all to be shipped within {MAX_SECONDS:g} s, found {report}")
    print(f"  shipped {report.recorded} records in {time.perf_counter() - began:.1f} s", file=sys.stderr)


def _beat_while(processes: ProcessPoolExecutor, settings: Settings, stop: Path, act: Callable[[], None]) -> list[float]:
    stop.unlink(missing_ok=True)
    beats: Future[list[float]] = processes.submit(_beat, settings, stop)
    act()
    stop.touch()
    return beats.result()


def _beat(settings: Settings, stop: Path) -> list[float]:
    """Hold a few leases until the file exists; return each heartbeat's delay after its due time in milliseconds."""
    dispatcher = connect(settings)
    queue = WorkerQueue(open_redis(settings), Keys(settings.namespace), settings)
    worker = f"worker-{time.monotonic_ns()}"
    dispatcher.submit([Task(id=worker, run="beats", group_size=NUM_LEASES)])
    leases = [(lease, "running") for lease in queue.claim(worker, NUM_LEASES)]
    took, due = list[float](), time.perf_counter()
    while not stop.exists():
        time.sleep(max(0.0, due - time.perf_counter()))
        answers = queue.heartbeat(worker, b"{}", leases).leases
        took.append(1000 * (time.perf_counter() - due))
        due += 1 / BEATS_PER_SECOND
        if set(answers) != {"go"}:
            raise RuntimeError(f"expected leases to be held, found {answers}")
    return took


def _shown(took: Sequence[float]) -> str:
    return f"{median(took):.1f}/{quantiles(took, n=100, method='inclusive')[98]:.1f}"
