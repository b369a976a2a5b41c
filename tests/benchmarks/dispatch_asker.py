"""Client that queries the store during another measurement: every kind of query, in turns.

``dispatch_asker.py NUM_TRAJECTORIES QUERIES_PER_SECOND`` asks until its standard input closes, then prints the count.
"""

import sys
import time
from itertools import cycle
from threading import Event, Thread

from store_shapes import SHAPES, Draw

from agent_layer.settings import load_settings
from agent_layer.store import open_store


def main(num_trajectories: int, per_second: float) -> None:
    """Ask at fixed times, whatever became of the question before."""
    store, draw = open_store(load_settings()), Draw("live", num_trajectories)
    shapes = cycle([shape for shape in SHAPES if shape.kind == "query"])
    ended = Event()
    Thread(target=_set_at_end, args=(ended,), daemon=True).start()
    print("asking", flush=True)
    due, num = time.monotonic(), 0
    while not ended.wait(max(0.0, due - time.monotonic())):
        store.query(**next(shapes).ask(draw))
        due, num = due + 1 / per_second, num + 1
    print(num, flush=True)


def _set_at_end(ended: Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
