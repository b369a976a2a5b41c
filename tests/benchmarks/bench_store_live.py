"""Delay from the end of a step until queries find it, while its rollout runs."""

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench_table import Figure
from store_facts import Facts, make_facts
from store_feed import Appends
from store_servers import run_servers
from store_workload import make_appends

from agent_layer.recorder import open_recorder
from agent_layer.settings import Settings
from agent_layer.store import Store, open_store

__all__ = ["measure_store_live"]

NUM_STEPS, WARM_UP = 40, 3
POLL_SECONDS, MAX_SECONDS = 0.005, 30.0


def measure_store_live(directory: Path) -> list[Figure]:
    """Record one rollout step by step, and query each step until it is found."""
    with run_servers(directory) as servers:
        local = servers.settings(directory / "local", namespace="local")
        remote = servers.settings(directory / "remote", on_s3=True, namespace="remote")
        remote = remote.model_copy(update={"log_roll_seconds": 1.0})  # as DESIGN has it for S3
        return [
            _figure("a directory", "≤ 1 s", list(_delays(local))),
            _figure("S3", "≤ 2 s", list(_delays(remote))),
        ]


def _figure(place: str, aim: str, delays: list[float]) -> Figure:
    counted = delays[WARM_UP:]
    what = f"store, from the end of a step until a query finds it, {place}: median/longest of {len(counted)}"
    return Figure(what, f"{median(counted):.2f}/{max(counted):.2f} s", "", "", aim)


def _delays(settings: Settings) -> Iterator[float]:
    facts = make_facts(0, NUM_STEPS)
    store, recorder = open_store(settings), open_recorder(settings)
    opening, *steps = _by_step(make_appends(facts))
    for records in opening:
        recorder.append(*records)
    for step, appends in enumerate(steps):
        for records in appends:
            recorder.append(*records)
        ended_at = time.perf_counter()
        _await_step(store, facts, step)
        yield time.perf_counter() - ended_at
    recorder.close()


def _by_step(appends: Appends) -> list[Appends]:
    """Yield the records before the first step, then those of each step; the rollout's end is left out."""
    begins = range(1, len(appends), 3)
    return [appends[:1], *(appends[begin:end] for begin, end in pairwise(begins))]


def _await_step(store: Store, facts: Facts, step: int) -> None:
    deadline = time.monotonic() + MAX_SECONDS
    while not store.query(task=facts.task_id, step=step).items:
        if time.monotonic() > deadline:
            raise RuntimeError(f"expected step {step} to be found within {MAX_SECONDS:g} s")
        time.sleep(POLL_SECONDS)
