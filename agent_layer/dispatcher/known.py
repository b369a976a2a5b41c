"""This file holds what becomes of tasks that ask what has been asked before: kept, left out, or refused."""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from agent_layer.errors import BadInputError
from agent_layer.schema.task import Task, hash_input

__all__ = ["Known", "new_tasks"]

Known: TypeAlias = Literal["all", "refuse", "skip"]
"""``all``: they are tasks like others. ``skip``: they are left out. ``refuse``: none of the tasks is taken."""


def new_tasks(
    tasks: Sequence[Task], places: Sequence[str], known: Known, is_stored: Callable[[Task, str], bool]
) -> list[Task]:
    """Choose the tasks that are to be queued.

    Args:
        tasks: as they were read.
        places: [num_tasks] where each stands, for the error.
        known: what becomes of a task that asks what another one of them, or a stored one, has asked.
        is_stored: whether one with the task's run and split and this input hash is stored.

    Raises: BadInputError: one is known and that is refused; it names the first.
    """
    if known == "all":
        return list(tasks)
    asked: dict[str, str] = {}
    new: list[Task] = []
    for task, place in zip(tasks, places, strict=True):
        input_hash = hash_input(task)
        before = asked.get(input_hash) or ("the store" if is_stored(task, input_hash) else None)
        if before is None:
            new.append(task)
        elif known == "refuse":
            raise BadInputError(
                f"{place}: expected a task that asks something new, but {before} has one with the same input (task"
                f" {task.id!r}, input hash {input_hash}); nothing was queued, leave it out or add --known skip"
            )
        asked.setdefault(input_hash, place)
    return new
