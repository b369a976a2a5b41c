"""The crowd: ``python tests/soak/crowd DIRECTORY [--slots N] [--seconds S] [--scale X]``.

Rollouts of heavy-tailed durations keep all slots of real workers busy, through a real dispatcher, gateway and Redis.
After S seconds the rest is cancelled. It prints one ``value name`` per line and every broken promise; the exit status
is 1 if there is one.
"""

import argparse
import sys
import time
from pathlib import Path

from book import busy_share, read_book
from comparing import count_rollouts, find_breaches
from durations import draw_durations, draw_rests, mean_seconds
from place import Place, open_place
from watch import Watch

from agent_layer.dispatcher import Dispatcher, connect
from agent_layer.schema.task import Task
from agent_layer.store import open_store

_GROUP_SIZE = 8
_ROOM = 1.3
"""Rollouts that are asked for, for each that is expected to end: the queue is not to run empty."""
_FILL_SECONDS = 120.0
_CANCEL_SECONDS = 60.0


def ask(dispatcher: Dispatcher, options: argparse.Namespace) -> list[str]:
    """Submit a crowd that is in the middle of its life, and enough that follow it; ids of the groups."""
    num_following = round(_ROOM * options.slots * (options.seconds + 10) / (mean_seconds() * options.scale))
    drawn = draw_rests(options.slots, options.seed) + draw_durations(num_following, options.seed)
    seconds = [options.scale * one for one in drawn]
    groups = [seconds[at : at + _GROUP_SIZE] for at in range(0, len(seconds) - _GROUP_SIZE + 1, _GROUP_SIZE)]
    tasks = [
        Task(id=f"t{number}", run="crowd", scorer="agent", group_size=_GROUP_SIZE, input={"seconds": group})
        for number, group in enumerate(groups)
    ]
    return dispatcher.submit(tasks)


def live(place: Place, options: argparse.Namespace) -> tuple[dict[str, float], list[str]]:
    """Let the crowd live; what was counted, and every breach."""
    dispatcher = connect(place.settings)
    watch = Watch(place, dispatcher)
    began = time.time()
    groups = ask(dispatcher, options)
    submitted = time.time()
    watch.until(lambda: len(read_book(place.book).spans) >= options.slots, _FILL_SECONDS, "all slots taken once")
    since = sorted(span.began for span in read_book(place.book).spans.values())[options.slots - 1]
    watch.for_seconds(options.seconds)
    until = watch.emptied_at or time.time()
    dispatcher.cancel(groups)
    cancelled = time.time()
    watch.until(lambda: not read_book(place.book).running, _CANCEL_SECONDS, "all agents ended")
    dispatcher.drain([worker.worker for worker in dispatcher.workers()])  # the last claims may begin agents yet
    watch.until(lambda: not place.has_workers, _CANCEL_SECONDS, "all workers drained")
    book, (rollouts, statuses) = read_book(place.book), count_rollouts(dispatcher, groups)
    counts: dict[str, float] = {f"rollouts {status}": number for status, number in statuses.items()}
    counts |= {
        "s to submit": submitted - began,
        "s to fill all slots": since - submitted,
        "s watched": until - since,
        "% busy": 100 * busy_share(book, options.slots, since, until),
        "ends/s": book.num_ended(since, until) / (until - since),
        "s to cancel what was left": cancelled - until,
        "s until all its agents had ended": max(span.ended for span in book.spans.values()) - cancelled,
        "s longest silence of a worker": watch.max_silence,
    }
    return counts | dict(watch.parts(book, since, until)), list(
        find_breaches(book, rollouts, open_store(place.settings))
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/soak/crowd", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--slots", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0, help="watched with all slots taken")
    parser.add_argument("--scale", type=float, default=1.0, help="of all durations; fewer end in a second")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with open_place(options.directory, options.workers, options.slots // options.workers) as place:
        counts, breaches = live(place, options)
    sys.stdout.writelines(f"{number:10.2f} {what}\n" for what, number in counts.items())
    sys.stdout.writelines(f"{breach}\n" for breach in breaches)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
