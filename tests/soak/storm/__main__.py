"""The storm: ``python tests/soak/storm DIRECTORY [--seed S] [--calls N] [--s3]``.

Real processes work while they are killed and frozen at random; then the books are compared. Prints what happened, and
every breach; ends with 1 when there is one.
"""

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

from books import find_doubled, find_lost, find_mistrained, find_unknown, read_all, read_book, read_index, steps_by_mark
from chaos import Chaos
from gateway_deployment import GatewayDeployment

from agent_layer.infra.objects.memory import MemoryObjects
from agent_layer.store.segments.format import list_segments
from agent_layer.store.store import Store, open_store

_REST_SECONDS = 240.0


def compare(deployment: GatewayDeployment, store: Store, counts: Counter[str]) -> list[str]:
    """Every breach of the promises; counts what there was."""
    engine, agents = read_book(deployment.directory / "engine.book"), read_book(deployment.directory / "agents.book")
    copy = MemoryObjects({key: store.objects.get(key) for key in list_segments(store.keys, store.objects)})
    trajectories = read_all(Store(deployment.settings, store.redis, copy))
    steps = steps_by_mark(trajectories.values())
    counts["questions asked"] = len(agents.of("asked"))
    counts["answers seen"] = sum(map(len, agents.of("saw").values()))
    counts["answers left"] = len(agents.of("left"))
    counts["refusals"] = sum(map(len, agents.of("gave-up").values()))
    counts["calls begun by the engine"] = sum(map(len, engine.of("began").values()))
    counts["trajectories"] = len(trajectories)
    for step in (step for found in steps.values() for step in found):
        counts[f"steps {step.status}"] += 1
    breaches = [
        *find_lost(agents, steps),
        *find_unknown(engine, steps),
        *find_doubled(copy, store.keys, steps),
        *find_mistrained(engine, trajectories.values(), counts),
        *(str(finding) for finding in store.admin.check().findings),
    ]
    before = read_index(store)
    store.redis.flushall()
    store.admin.reindex()
    if read_index(store) != before:
        breaches.append("reindexed: the objects alone do not give the same rows and places")
    return breaches


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/soak/storm", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=120.0, help="longest rage")
    parser.add_argument("--s3", action="store_true")
    options = parser.parse_args()
    deployment = GatewayDeployment(options.directory, options.seed, is_s3=options.s3)
    chaos = Chaos(deployment, random.Random(options.seed))
    began = time.monotonic()
    try:
        deployment.build()
        deployment.start_agents()
        chaos.cause_failures(options.calls, options.seconds)
        raged = time.monotonic()
        deployment.come_to_rest(_REST_SECONDS)
        rested = time.monotonic()
        breaches = compare(deployment, open_store(deployment.settings), chaos.counts)
    finally:
        deployment.end()
    for what, number in chaos.counts.items():
        sys.stdout.write(f"{number:8} {what}\n")
    sys.stdout.write(f"raged {raged - began:.0f} s, rested {rested - raged:.0f} s, compared in the rest\n")
    sys.stdout.writelines(f"{breach}\n" for breach in breaches)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
