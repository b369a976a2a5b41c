"""Held-out tasks of a run, as its evaluation rounds take them."""

from collections.abc import Sequence

from envs.evaluation import LoadedTasks, TaskSource, load_tasks
from trainer_adapter.config import HeldOutConfig


def load_held_out(configs: Sequence[HeldOutConfig], *, run: str) -> dict[str, LoadedTasks]:
    """Read the held-out tasks of a run, by the name of their set.

    Raises: BadInputError: a file or task set cannot be used.
    """
    return {
        one.label: load_tasks(
            TaskSource(name=one.taskset or str(one.path), seed=one.seed, level=one.level, limit=one.count), run
        )
        for one in configs
    }
