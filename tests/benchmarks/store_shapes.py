"""Query shapes of the store's benchmark, with new values on each call."""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

import msgspec
from store_facts import BEGAN_AT, NUM_CUSTOMERS, NUM_RUNS, PER_VERSION, SECONDS_BETWEEN, TYPES, make_task_id

__all__ = ["SHAPES", "Draw", "Question", "Shape"]

Question: TypeAlias = dict[str, object]
"""Keyword arguments of a method of the store."""


class Draw:
    """Draws query values for a world of ``num_trajectories`` trajectories."""

    def __init__(self, seed: str, num_trajectories: int) -> None:
        self._random = Random(seed)
        self._num = num_trajectories

    def task_type(self) -> str:
        """Frequent ones more often."""
        return self._random.choices(list(TYPES), list(TYPES.values()))[0]

    def task(self) -> str:
        """Any."""
        return make_task_id(self._random.randrange(self._num))

    def run(self) -> str:
        """Any."""
        return f"run-{self._random.randrange(NUM_RUNS)}"

    def customer(self) -> dict[str, str]:
        """A label that one task in 200 has."""
        return {"customer": f"c{self._random.randrange(NUM_CUSTOMERS)}"}

    def versions(self, num_versions: int) -> tuple[int, int]:
        """Return the first and last of ``num_versions`` neighbouring versions."""
        oldest = self._random.randrange(max(1, self._num // PER_VERSION - num_versions))
        return oldest, oldest + num_versions - 1

    def window(self, seconds: float) -> Question:
        """A span of time."""
        since = BEGAN_AT + self._random.random() * max(1.0, self._num * SECONDS_BETWEEN - seconds)
        return {"since": since, "until": since + seconds}


class Shape(msgspec.Struct, frozen=True):
    """Questions that differ in their values only."""

    name: str
    ask: Callable[[Draw], Question]
    kind: str = "query"
    """``page``: that behind 50 others; else the name of a method of the store."""
    aim: str = "p50 ≤ 2.5 × the floor"


_HALF = (0.5, None)

SHAPES = [
    Shape(
        "newest 32 by task type, step, policy, reward",
        lambda draw: {"task_type": draw.task_type(), "step": 3, "policy": draw.versions(20), "reward": _HALF},
    ),
    Shape(
        "newest 32 by task, step, policy, reward",
        lambda draw: {"task": draw.task(), "step": 3, "policy": draw.versions(1_000), "reward": _HALF},
    ),
    Shape(
        "all of math by step, 20 policy versions, reward",
        lambda draw: {"task_type": "math", "step": 3, "policy": draw.versions(20), "reward": _HALF},
        "scan",
        aim="",
    ),
    Shape("newest 32 of all", lambda _: {}),
    Shape(
        "newest 32 by run, split, status",
        lambda draw: {"run": draw.run(), "split": "eval", "status": "truncated"},
    ),
    Shape(
        "none by a rare type, run, status, reward",
        lambda draw: {"task_type": "audio", "run": draw.run(), "status": "cancelled", "reward": _HALF},
    ),
    Shape(
        "none by a frequent type, policy, a reward that it never has",
        lambda draw: {"task_type": "math", "policy": draw.versions(20), "reward": (0.2, 0.8)},
    ),
    Shape(
        "best 32 by reward, of run, type",
        lambda draw: {"run": draw.run(), "task_type": "search", "order": "reward"},
    ),
    Shape(
        "32 of the newest policy, of accepted, type",
        lambda draw: {"accepted": True, "task_type": draw.task_type(), "order": "policy"},
    ),
    Shape("newest 32 by label, type", lambda draw: {"labels": draw.customer(), "task_type": draw.task_type()}),
    Shape(
        "newest 32 by a rare agent, type, reward",
        lambda draw: {"agent": "planner", "task_type": draw.task_type(), "reward": _HALF},
    ),
    Shape("newest 32 by a rare tool, reward", lambda _: {"tool": "calculator", "reward": _HALF}),
    Shape("newest 32 by cause, a day", lambda draw: {"cause": "infra", **draw.window(86_400.0)}),
    Shape(
        "oldest 32 by type, an hour",
        lambda draw: {"task_type": draw.task_type(), "order": "oldest", **draw.window(3_600.0)},
    ),
    Shape("page 51 by type, reward", lambda draw: {"task_type": draw.task_type(), "reward": _HALF}, "page"),
    Shape(
        "count by type, 100 policy versions, reward",
        lambda draw: {"task_type": draw.task_type(), "policy": draw.versions(100), "reward": _HALF},
        "count",
        aim="",
    ),
    Shape(
        "summary of 100 policy versions by type",
        lambda draw: {"policy": draw.versions(100), "by": ["task_type"]},
        "summarise",
        aim="",
    ),
]
