"""Chaos for the dispatcher: ``python tests/soak/dispatch DIRECTORY [--seed S] [--tasks N]``.

Eight workers with wrong clocks do rollouts in groups of eight while they, Redis and the shipper are killed; then what
they wrote down is compared with what the dispatcher and the store hold. Prints what happened, and every breach; ends
with 1 when there is one.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from asking import RUN, make_tasks
from audit import Account, find_unindexed, read_stored
from book import read_deeds
from chaos import Chaos
from queue_deployment import QueueDeployment

from agent_layer.dispatcher import Dispatcher, connect
from agent_layer.store.store import Store, open_store

_REST_SECONDS = 120.0
_SHOWN_BREACHES = 40


def read_deliveries(directory: Path, group_ids: Sequence[str], counts: Counter[str]) -> list[str]:
    """The consumer got each group once, whole."""
    rows = [line.split() for line in (directory / "deliveries").read_text().splitlines()]
    seen = Counter(group_id for group_id, _ in rows)
    counts["groups delivered"] = seen.total()
    breaches = [f"delivered short: {group_id}" for group_id, how in rows if how != "whole"]
    breaches += [f"delivered {number} times: {group_id}" for group_id, number in seen.items() if number > 1]
    return breaches + [f"never delivered: {group_id}" for group_id in set(group_ids) - set(seen)]


def compare(chaos: Chaos, dispatcher: Dispatcher, store: Store) -> list[str]:
    """Every breach of the promises; counts what there was."""
    deployment, group_ids = chaos.deployment, list(chaos.group_ids)
    account = Account(read_deeds(deployment.directory), dispatcher.rollouts(group_ids), dispatcher.groups(group_ids))
    breaches = [*account.breaches(read_stored(store), chaos.cancelled), *deployment.complaints()]
    breaches += find_unindexed(store)
    breaches += read_deliveries(deployment.directory, group_ids, chaos.counts)
    chaos.counts.update(account.counts)
    chaos.counts["accepted in the store"] = store.count(run=RUN, accepted=True)
    chaos.counts["attempts lost"] = store.count(run=RUN, status="lost")
    for row in store.scan(run=RUN, status="running"):
        breaches.append(f"ended by nobody in the store: {row.trajectory_id}")
    return breaches


def tell(counts: Counter[str], seconds: Sequence[float], breaches: Sequence[str]) -> None:
    """Print the table of counts, then how long each part took, then the breaches."""
    for what, number in sorted(counts.items()):
        sys.stdout.write(f"{number:8} {what}\n")
    sys.stdout.write("raged {:.0f} s, rested {:.0f} s, compared {:.0f} s".format(*seconds))
    sys.stdout.write(f", {len(breaches)} breaches\n")
    kinds = Counter(breach.partition(":")[0] for breach in breaches)
    sys.stdout.writelines(f"{number} times {kind}\n" for kind, number in kinds.items())
    sys.stdout.writelines(f"{breach}\n" for breach in breaches[:_SHOWN_BREACHES])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/soak/dispatch", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tasks", type=int, default=2500)
    parser.add_argument("--redis-kills", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=150.0, help="longest rage")
    options = parser.parse_args()
    deployment, tasks = QueueDeployment(options.directory, options.seed), make_tasks(options.tasks)
    began = time.monotonic()
    try:
        deployment.start_redis()
        dispatcher = connect(deployment.settings)
        group_ids, chance = dispatcher.submit(tasks), random.Random(options.seed)
        chaos = Chaos(deployment, dispatcher, tasks, group_ids, chance, options.redis_kills)
        deployment.start_workers()
        deployment.start_consumer()
        num_open = chaos.cause_failures(options.seconds)
        raged = time.monotonic()
        deployment.come_to_rest(_REST_SECONDS)
        rested = time.monotonic()
        breaches = [f"open after {options.seconds:g} s: {num_open} groups"] if num_open else []
        breaches += compare(chaos, dispatcher, open_store(deployment.settings))
    finally:
        deployment.end()
    seconds = [raged - began, rested - raged, time.monotonic() - rested]
    tell(chaos.counts, seconds, breaches)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
