"""Query times of the store at ten thousand, a hundred thousand and a million trajectories.

The index is filled by commits without objects, from a world of realistic proportions (see store_facts.py). Every
question of a shape asks for other values; the floor is the bare reading of 32 rows whose ids are known.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from statistics import median, quantiles

import msgspec
from bench_store_readers import measure_store_readers
from bench_table import Figure
from store_facts import make_facts
from store_fill import fill
from store_servers import run_servers
from store_shapes import SHAPES, Draw, Question, Shape

from agent_layer.store import Store, open_store
from agent_layer.store.index.index import Index

__all__ = ["measure_store_queries"]

SIZES = (10_000, 100_000, 1_000_000)
NUM_ASKED, WARM_UP = 200, 10
MAX_SECONDS = 10.0
"""Time limit for one query shape; its figures then name the number of answers."""
NUM_BOOKS, PAGES_BEFORE = 10, 50


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What was found at one size."""

    size: int
    bytes_each: float
    """Memory of Redis that a trajectory takes."""
    took: dict[str, list[float]]
    """Milliseconds, by shape."""
    floor: list[float]


def measure_store_queries(directory: Path, sizes: Sequence[int] = SIZES) -> list[Figure]:
    """Fill up to each size in turn, and ask all there; then let many ask at once."""
    rounds: list[Answers] = []
    with run_servers(directory) as servers:
        settings = servers.settings(directory / "store")
        store = open_store(settings)
        empty = store.redis.info("memory")["used_memory"]
        for size_before, size in zip((0, *sizes), sizes, strict=False):
            fill(settings, size_before, size)
            _settle(store)
            rounds.append(_ask_all(store, size, (store.redis.info("memory")["used_memory"] - empty) / size))
        crowd = measure_store_readers(settings, sizes[-1])
    return [*_figures(rounds), *crowd]


def _ask_all(store: Store, size: int, bytes_each: float) -> Answers:
    print(f"  asking {size:,}", file=sys.stderr)
    took = {shape.name: _time(_asking(store, shape, size)) for shape in SHAPES}
    return Answers(size=size, bytes_each=bytes_each, took=took, floor=_time(_make_floor(store, size)))


def _figures(rounds: Sequence[Answers]) -> Iterator[Figure]:
    sizes = " · ".join(_short(answers.size) for answers in rounds)
    floor = " · ".join(_percentiles(answers.floor) for answers in rounds)
    yield Figure(
        "store, an index of so many trajectories (floor: to read 32 known rows)", sizes, sizes, "at the last", ""
    )
    memory = " · ".join(f"{answers.bytes_each:,.0f}" for answers in rounds)
    yield Figure("store, bytes of Redis a trajectory of 8 steps", memory, "", "", "≤ 3,600")
    for shape in SHAPES:
        took = " · ".join(_percentiles(answers.took[shape.name]) for answers in rounds)
        ratio = median(rounds[-1].took[shape.name]) / median(rounds[-1].floor)
        yield Figure(f"store, {shape.name}: p50/p99 ms", took, floor, f"{ratio:.1f}", shape.aim)


def _asking(store: Store, shape: Shape, size: int) -> Callable[[], Callable[[], object]]:
    """Make questions of a shape, ready to be asked."""
    draw = Draw(shape.name, size)
    if shape.kind == "page":
        pages = cycle([_behind(store, shape.ask(draw)) for _ in range(NUM_BOOKS)])
        return lambda: partial(store.query, **next(pages))
    ask = getattr(store, shape.kind)
    if shape.kind == "scan":
        return lambda: partial(lambda question: list(ask(**question)), shape.ask(draw))
    return lambda: partial(ask, **shape.ask(draw))


def _behind(store: Store, question: Question) -> Question:
    """The same question, for what comes behind the first pages."""
    cursor: str | None = None
    for _ in range(PAGES_BEFORE):
        cursor = store.query(**question, cursor=cursor).cursor or cursor
    return {**question, "cursor": cursor}


def _make_floor(store: Store, size: int) -> Callable[[], Callable[[], object]]:
    random, index = Random(size), Index(store.redis, store.keys)
    return lambda: partial(index.rows, [make_facts(random.randrange(size)).trajectory_id for _ in range(32)])


def _time(prepare: Callable[[], Callable[[], object]]) -> list[float]:
    """Ask again and again; give milliseconds, without those of the warm-up."""
    took, end = list[float](), time.monotonic() + MAX_SECONDS
    while len(took) < WARM_UP + NUM_ASKED and (len(took) < 2 * WARM_UP or time.monotonic() < end):
        ask = prepare()
        began = time.perf_counter()
        ask()
        took.append(1000 * (time.perf_counter() - began))
    return took[WARM_UP:]


def _percentiles(took: Sequence[float]) -> str:
    shown = f"{median(took):.1f}/{quantiles(took, n=100, method='inclusive')[98]:.1f}"
    return shown if len(took) >= NUM_ASKED else f"{shown} (of {len(took)})"


def _short(number: int) -> str:
    return f"{number // 1_000_000} M" if number >= 1_000_000 else f"{number // 1000} k"


def _settle(store: Store) -> None:
    """Wait until Redis has rewritten its append-only file, which a fill makes it do."""
    while store.redis.info("persistence")["aof_rewrite_in_progress"]:
        time.sleep(0.1)
