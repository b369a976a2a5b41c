"""Search inside trajectories: the first search reads all segments, later ones read what is new; each form of words."""

import sys
import time
from pathlib import Path
from random import Random
from statistics import median

from bench_table import Figure
from store_facts import make_facts
from store_feed import feed
from store_servers import run_servers
from store_text import write_text
from store_workload import make_appends

from agent_layer.store import Store, open_store

__all__ = ["measure_store_text"]

NUM_TRAJECTORIES, PER_SEGMENT, NUM_STEPS = 10_000, 100, 8
NUM_ASKED = 100


def measure_store_text(directory: Path, num_trajectories: int = NUM_TRAJECTORIES) -> list[Figure]:
    """Store trajectories, build the text index of all, and ask for words of several kinds."""
    with run_servers(directory) as servers:
        settings = servers.settings(directory / "store")
        feed(settings, [make_appends(make_facts(number, NUM_STEPS)) for number in range(num_trajectories)], PER_SEGMENT)
        store = open_store(settings)
        began = time.perf_counter()
        coverage = store.texts.update()
        took = time.perf_counter() - began
        if coverage.describe():
            raise RuntimeError(f"expected the whole store in the index, found {coverage.describe()[0]}")
        size = sum(path.stat().st_size for path in (settings.dir / "text").iterdir()) / 1e6
        seconds = Figure(f"store, text index of {num_trajectories:,} trajectories: seconds", f"{took:.1f}", "", "", "")
        questions = [_ask(store, name, texts) for name, texts in _questions().items()]
    print(f"  text index: {took:.1f} s, {size:.0f} MB", file=sys.stderr)
    return [seconds, Figure("store, text index: MB on disk", f"{size:.0f}", "", "", ""), *questions]


def _questions() -> dict[str, list[str]]:
    random = Random(4)
    drawn = [write_text(random, 400).words.split() for _ in range(NUM_ASKED)]
    return {
        "a frequent word": [min(words, key=len) for words in drawn],
        "a rare word": [max(words, key=len) for words in drawn],
        "two words, no filter": [" ".join(words[:2]) for words in drawn],
        "no match": [f"zzz{number}" for number in range(NUM_ASKED)],
    }


def _ask(store: Store, name: str, texts: list[str]) -> Figure:
    took: list[float] = []
    for text in texts:
        began = time.perf_counter()
        store.search_text(text, limit=32)
        took.append(1_000 * (time.perf_counter() - began))
    print(f"  {name}: {median(took):.1f} ms", file=sys.stderr)
    return Figure(f"store, search inside, {name}: ms (p50, 32 trajectories)", f"{median(took):.1f}", "", "", "")
