"""A folder of Harbor tasks as lines of a tasks file, for what queues tasks."""

from collections.abc import Callable
from pathlib import Path

from agent_layer.settings import Settings
from envs.tasksets.gate.trainable import write_task_line
from envs.tasksets.harbor import HarborTasks


def read_lines(
    folder: Path, settings: Settings, tell: Callable[[int, int], None] = lambda _done, _all: None
) -> tuple[list[bytes], list[str]]:
    """Return the tasks that can run here as lines, and notes on the others and on what means nothing here.

    Args:
        folder: of the tasks.
        settings: what is here and what is allowed.
        tell: called with how many tasks are read, and how many there are: images may have to be built.

    Raises: BadInputError: none can run here, or one is malformed.
    """
    taskset = HarborTasks(folder, settings)
    tell(0, len(taskset.directories))
    tasks = taskset.read_tasks(tell=tell)
    return [write_task_line(task, taskset) for task in tasks], taskset.list_notes()
