"""Throughput of many readers of one index while a writer commits to it, and their cost for the writer."""

import time
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context
from statistics import median, quantiles

import msgspec
from bench_table import Figure
from store_facts import make_facts
from store_fill import commit_facts
from store_shapes import SHAPES, Draw

from agent_layer.settings import Settings
from agent_layer.store import open_store

__all__ = ["measure_store_readers"]

NUM_READERS = (1, 4, 8)
SECONDS, START_SECONDS = 4.0, 0.5
PER_SEGMENT = 100


class ReadFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What some readers and a writer came to."""

    queries_per_second: float
    took: list[float]
    """Milliseconds."""
    writes_per_second: float
    """Trajectories."""


def measure_store_readers(settings: Settings, size: int) -> list[Figure]:
    """Let each number of readers ask for the newest 32 of an index of this size while it grows."""
    fresh = count(size, 1_000_000)
    with ProcessPoolExecutor(max(NUM_READERS) + 1, get_context("spawn")) as processes:
        _run(processes, settings, max(NUM_READERS), next(fresh), size)  # starts all processes, and does not count
        alone = _run(processes, settings, 0, next(fresh), size)
        found = {num: _run(processes, settings, num, next(fresh), size) for num in NUM_READERS}
    return [_figure(num, size, read, alone) for num, read in found.items()]


def _figure(num: int, size: int, read: ReadFigures, alone: ReadFigures) -> Figure:
    p99 = quantiles(read.took, n=100, method="inclusive")[98]
    return Figure(
        f"store, {num} processes ask for newest 32 of {size:,}, one writes: queries/s, p50/p99 ms, trajectories/s"
        " (floor: nobody asks)",
        f"{read.queries_per_second:,.0f}, {median(read.took):.1f}/{p99:.1f}, {read.writes_per_second:,.0f}",
        f"{alone.writes_per_second:,.0f}",
        f"{read.writes_per_second / alone.writes_per_second:.2f}",
        "",
    )


def _run(processes: ProcessPoolExecutor, settings: Settings, num_readers: int, first: int, size: int) -> ReadFigures:
    begin = time.time() + START_SECONDS
    writer = processes.submit(_write, settings, begin, first)
    readers = [processes.submit(_read, settings, begin, number, size) for number in range(num_readers)]
    took = [one for reader in readers for one in reader.result()]
    return ReadFigures(queries_per_second=len(took) / SECONDS, took=took, writes_per_second=writer.result() / SECONDS)


def _write(settings: Settings, begin: float, first: int) -> int:
    """Commit until the time is over; give how many trajectories."""
    store = open_store(settings)
    time.sleep(max(0.0, begin - time.time()))
    number = first
    while time.time() < begin + SECONDS:
        commit_facts(store.redis, store.keys, [make_facts(one) for one in range(number, number + PER_SEGMENT)])
        number += PER_SEGMENT
    return number - first


def _read(settings: Settings, begin: float, seed: int, size: int) -> list[float]:
    store, draw, took = open_store(settings), Draw(str(seed), size), list[float]()
    time.sleep(max(0.0, begin - time.time()))
    while time.time() < begin + SECONDS:
        question = SHAPES[0].ask(draw)
        began = time.perf_counter()
        store.query(**question)
        took.append(1000 * (time.perf_counter() - began))
    return took
