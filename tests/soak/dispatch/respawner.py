"""This program raises one worker after the other: ``nest.py DIRECTORY NUMBER SEED``; settings from the environment.

What workers need is imported once, under a wrong clock; each worker is a fork of this process, made to be killed, with
clocks that are wrong in a way of their own. Ends when ``DIRECTORY/stop`` is there, or after some minutes.
"""

from clocks import WrongClock, true_time

clock = WrongClock()

import os  # noqa: E402  # nothing may be imported before the clocks are wrong
import random  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import traceback  # noqa: E402
from pathlib import Path  # noqa: E402

from worker import Worker  # noqa: E402

from agent_layer.errors import UnreachableError  # noqa: E402
from agent_layer.settings import load_settings  # noqa: E402

_MAX_SECONDS = 400.0
_REST_SECONDS = 0.2
"""After a worker that found no Redis."""


def live(directory: Path, name: str, seed: float) -> None:
    """Be a worker, and end without the clean-up of the process that was forked."""
    chance = random.Random(seed)
    clock.turn(chance)
    try:
        Worker(load_settings(), directory, name, chance).work()
    except UnreachableError:  # Redis is away: the next worker may find it
        time.sleep(_REST_SECONDS)
    except BaseException:  # noqa: BLE001  # every failure is printed and counts as a breach
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(directory: str, number: str, seed: str) -> None:
    chance, began, stop = random.Random(f"{seed}-{number}"), true_time(), Path(directory) / "stop"
    num_lives = 0
    while not stop.exists() and true_time() < began + _MAX_SECONDS:
        num_lives += 1
        own = chance.random()
        pid = os.fork()
        if pid == 0:
            live(Path(directory), f"w{number}-{num_lives}", own)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
