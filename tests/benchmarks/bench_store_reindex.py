"""Speed of rebuilding an empty index from the objects alone, beside a plain read of all bytes."""

import sys
import time
from pathlib import Path
from statistics import median

from bench_table import Figure
from store_facts import make_facts
from store_feed import feed
from store_servers import run_servers
from store_workload import make_appends

from agent_layer.infra.objects.filesystem import open_objects
from agent_layer.settings import Settings
from agent_layer.store import open_store

__all__ = ["measure_store_reindex"]

NUM_TRAJECTORIES, PER_SEGMENT, NUM_STEPS = 5_000, 100, 8
NUM_ROUNDS = 3


def measure_store_reindex(directory: Path, num_trajectories: int = NUM_TRAJECTORIES) -> list[Figure]:
    """Store trajectories once, copy the objects to S3, and rebuild from each place in turns."""
    with run_servers(directory) as servers:
        local = servers.settings(directory / "store")
        remote = servers.settings(directory / "store", on_s3=True)
        feed(local, [make_appends(make_facts(number, NUM_STEPS)) for number in range(num_trajectories)], PER_SEGMENT)
        source, target = open_objects(local), open_objects(remote)
        for key in source.list(""):
            target.put(key, source.get(key))
        places = {"a directory": local, "S3": remote}
        rounds = [
            {name: (_rebuild(settings), _read(settings)) for name, settings in places.items()}
            for _ in range(NUM_ROUNDS)
        ]
    return [_figure(name, num_trajectories, [found[name] for found in rounds]) for name in places]


def _figure(place: str, num_trajectories: int, rounds: list[tuple[float, float]]) -> Figure:
    ours, floor = (median(num_trajectories / one[index] for one in rounds) for index in (0, 1))
    what = f"store, reindex from {place}: trajectories/s (floor: all bytes are read)"
    print(f"  {what}: {ours:,.0f}", file=sys.stderr)
    return Figure(what, f"{ours:,.0f}", f"{floor:,.0f}", f"{ours / floor:.2f}", "≥ 20,000/s")


def _rebuild(settings: Settings) -> float:
    """Return the seconds of a rebuild."""
    store = open_store(settings)
    store.redis.flushall()
    began = time.perf_counter()
    report = store.admin.reindex()
    if report.corrupt:
        raise RuntimeError(f"expected whole segments, found {report.corrupt[0]}")
    return time.perf_counter() - began


def _read(settings: Settings) -> float:
    objects = open_objects(settings)
    began = time.perf_counter()
    for key in objects.list(""):
        objects.get(key)
    return time.perf_counter() - began
