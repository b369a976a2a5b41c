"""The process that submits: it executes orders from its standard input, and answers each."""

import random
import sys
import time
from collections.abc import Callable

__all__ = ["serve_orders"]

_PAUSE_SECONDS = (0.01, 0.03)
"""Between tasks that are asked for one by one; random, so that no worker's own rhythm is met."""


def serve_orders(fill: Callable[[int], None], ask: Callable[[], None]) -> None:
    """Submit until standard input ends.

    Args:
        fill: submits NUM tasks at once; on ``fill NUM``.
        ask: submits one task that carries the time; called NUM times with pauses on ``ask NUM``.
    """
    print("ready", flush=True)
    for line in sys.stdin:
        order, number = line.split()
        if order == "fill":
            fill(int(number))
        else:
            _ask_slowly(ask, int(number))
        print("done", flush=True)


def _ask_slowly(ask: Callable[[], None], num: int) -> None:
    for _ in range(num):
        time.sleep(random.uniform(*_PAUSE_SECONDS))
        ask()
