"""Throughput of queues with no-op tasks, and the delay until a worker receives one.

All queues but Ray's lie in one Redis. Their workers are started together and frozen; rounds go in turns, so that a busy
machine hits all alike. A round submits while the workers are frozen and counts what they then work off.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import msgspec
from bench_table import Figure, print_figures
from dispatch_contenders import GUARANTEES, RAY, new_celery, new_ours, new_saq, new_taskiq, run_redis
from dispatch_crews import Crew, run_crew

from agent_layer.settings import Settings

__all__ = ["measure_dispatch", "shown_ms"]

NUM_WORKERS = (1, 4)
NUM_ROUNDS = 5
NUM_ASKED = 50
"""Single tasks in each round of them."""
NUM_WARM, ROUND_SECONDS, STEP = 1000, 1.0, 200
"""A round has as many tasks as ROUND_SECONDS allow at the previous round's rate, in multiples of STEP."""
MIN_TASKS, MAX_TASKS = 400, 16_000
BATCHES = {1: "ours, batch 1", 16: "ours, batch 16"}
RAY_SECONDS = 150.0


class Measurement(msgspec.Struct):
    """What was measured of one contender."""

    rates: list[float] = []
    """Tasks per second, a number for each round."""
    waits: list[float] = []
    """Seconds from submit to the worker; empty where that was not measured."""

    @property
    def rate(self) -> float:
        """Median over the rounds."""
        return median(self.rates)


def measure_dispatch(directory: Path) -> list[Figure]:
    """Measure with one worker process, then with four."""
    with run_redis(directory) as url:
        found = {num: _measure_all(directory / str(num), url, num) for num in NUM_WORKERS}
    rates = [figure for num in NUM_WORKERS for figure in _rate_figures(num, found[num])]
    return [*rates, *_wait_figures(found[1])]


def _measure_all(directory: Path, url: str, num: int) -> dict[str, Measurement]:
    contenders = [new_ours(_settings(url, directory, batch), num, batch) for batch in BATCHES]
    contenders += [new_taskiq(url, num), new_saq(url, num), new_celery(url, num)]
    found = {one.name: Measurement() for one in contenders}
    with ExitStack() as cleanup:
        crews = [cleanup.enter_context(run_crew(one, directory / f"crew-{at}")) for at, one in enumerate(contenders)]
        sizes = [_round_size(crew.rate(NUM_WARM)) for crew in crews]
        for _ in range(NUM_ROUNDS):
            for crew, size in zip(crews, sizes, strict=True):
                found[crew.contender.name].rates.append(crew.rate(size))
        if num == 1:
            _measure_waits(crews, found)
    found["Ray"] = _measure_ray(num, NUM_ASKED * NUM_ROUNDS if num == 1 else 0)
    for name, one in found.items():
        print(f"  {name}, {num} processes: {' '.join(f'{rate:.0f}' for rate in one.rates)}", file=sys.stderr)
    return found


def _settings(url: str, directory: Path, batch: int) -> Settings:
    return Settings(dir=directory, redis_url=f"{url}/1", namespace=f"batch-{batch}")


def _measure_waits(crews: Sequence[Crew], found: dict[str, Measurement]) -> None:
    for _ in range(NUM_ROUNDS):
        for crew in crews:
            found[crew.contender.name].waits += crew.waits(NUM_ASKED)


def _round_size(rate: float) -> int:
    return min(max(round(rate * ROUND_SECONDS / STEP) * STEP, MIN_TASKS), MAX_TASKS)


def _measure_ray(num_workers: int, num_asked: int) -> Measurement:
    """A Ray of its own, alone: its servers are never quite idle, so it is not kept beside the others."""
    questions = [str(number) for number in (num_workers, NUM_ROUNDS, ROUND_SECONDS, num_asked)]
    variables = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    answer = subprocess.run(
        [*RAY, *questions], env=variables, stdout=subprocess.PIPE, stderr=sys.stderr, check=True, timeout=RAY_SECONDS
    )
    return msgspec.json.decode(answer.stdout.splitlines()[-1], type=Measurement)


def _rate_figures(num: int, found: dict[str, Measurement]) -> Iterator[Figure]:
    workers = f"{num} worker{'s' if num > 1 else ''}"
    for batch, name in BATCHES.items():
        what = f"dispatch, {workers}, batch {batch}: claim + commit/s beside taskiq ({GUARANTEES['taskiq']})"
        yield _rate_figure(what, found[name], found["taskiq"], "≥ 4,000; ≥ 8" if batch > 1 else "")
    for peer, guarantee in GUARANTEES.items():
        if peer != "taskiq":
            what = f"dispatch, {workers}, batch 16: beside {peer} ({guarantee})"
            yield _rate_figure(what, found[BATCHES[16]], found[peer], "")


def _rate_figure(what: str, ours: Measurement, peer: Measurement, aim: str) -> Figure:
    return Figure(what, f"{ours.rate:,.0f}", f"{peer.rate:,.0f}", f"{ours.rate / peer.rate:.1f}", aim)


def _wait_figures(found: dict[str, Measurement]) -> Iterator[Figure]:
    ours = found[BATCHES[1]].waits
    for peer in GUARANTEES:
        theirs = found[peer].waits
        what = f"dispatch, idle: from submit to a waiting worker, p50/p99 ms, beside {peer}"
        yield Figure(what, shown_ms(ours), shown_ms(theirs), f"{median(ours) / median(theirs):.2f}", "")


def shown_ms(waits: Sequence[float]) -> str:
    """Median and 99th percentile."""
    return f"{1000 * median(waits):.1f}/{1000 * quantiles(waits, n=100, method='inclusive')[98]:.1f}"


if __name__ == "__main__":
    with TemporaryDirectory(prefix="al-bench-", ignore_cleanup_errors=True) as home:
        print_figures(measure_dispatch(Path(home)))
