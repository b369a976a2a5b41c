"""A Redis that forgets: ``python tests/soak/forgetful DIRECTORY --server PROGRAM [--kind K] [--rounds N] [--seed S]``.

A line under load (queue, workers, gateway, engine, shipper, trainer with a ledger) suffers one fault per round, or two
that are combined; then what the trainer received is compared with what is stored. Prints what happened, and every
breach; ends with 1 when there is one. It tests the tree that PYTHONPATH names.
"""

import argparse
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median

from audit import find_breaches
from line import Line
from rounds import FAULTS, Rounds

from agent_layer.store.store import open_store

_KINDS = {
    "own": ["cut", "flush", "empty", "clock", "refuse"],
    "remote": ["cut", "empty"],
    "embedded": ["cut", "flush", "empty", "refuse"],
    "replicated": ["promote", "cut", "clock", "refuse"],
}
"""Faults by kind of server; "combined" causes two of them in one round."""
_SHOWN_BREACHES = 30


def tell(rounds: Rounds, breaches: list[str]) -> None:
    """Print counts, rounds and breaches."""
    for what, number in sorted(rounds.line.counts.items()):
        sys.stdout.write(f"{number:8} {what}\n")
    sys.stdout.writelines(f"{one}\n" for one in rounds.history)
    if rounds.seconds_until_back:
        found = rounds.seconds_until_back
        sys.stdout.write(f"served again after {median(found):.1f} s (median), {max(found):.1f} s at most\n")
    kinds = Counter(breach.partition(":")[0] for breach in breaches)
    sys.stdout.write(f"{len(breaches)} breaches\n")
    sys.stdout.writelines(f"{number} times {kind}\n" for kind, number in kinds.items())
    sys.stdout.writelines(f"{breach}\n" for breach in breaches[:_SHOWN_BREACHES])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/soak/forgetful", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--server", required=True, help="path of redis-server or valkey-server")
    parser.add_argument("--kind", choices=sorted(_KINDS), default="own")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--faults", nargs="*", choices=sorted(FAULTS), help="default: all that fit the kind")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    faults = options.faults or [*_KINDS[options.kind], "combined"]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started ends
    began = time.monotonic()
    line = Line(options.directory, options.server, options.kind)
    rounds, breaches = Rounds(line, chance, _KINDS[options.kind]), list[str]()
    try:
        line.build()
        rounds.await_first_group()
        for number in range(options.rounds):
            if not rounds.run(number, faults[number % len(faults)]):
                break
        for control in (line.server.control, *line.controls.values()):
            control.move_clock(0.0)
        breaches += rounds.breaches + line.come_to_rest()
        breaches += find_breaches(line, open_store(line.settings), line.counts)
    finally:
        line.end()
    tell(rounds, breaches)
    sys.stdout.write(f"{time.monotonic() - began:.0f} s in all\n")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
