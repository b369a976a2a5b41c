"""What an operator takes away of chosen trajectories: their tasks, to run them again, or all that they hold."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from agent_layer.dispatcher import task_line
from agent_layer.errors import BadInputError
from agent_layer.schema import Task
from agent_layer.store import Store, show_trajectory
from agent_layer.view.writes.commands import Identity


class ExportOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of an export."""

    trajectories: Annotated[list[Identity], msgspec.Meta(min_length=1, max_length=500)]


def export_tasks(store: Store, trajectory_ids: Sequence[str]) -> Iterator[bytes]:
    """Yield the tasks of trajectories, each once, as lines that ``agent-layer submit`` takes, with their grading.

    Raises: NotFoundError: one is not stored. BadInputError: the task of one is not known, or two have one id.
    """
    tasks: dict[str, Task] = {}
    for trajectory_id in trajectory_ids:
        started = store.get(trajectory_id, blobs=False).started
        if started is None or started.task is None:
            raise BadInputError(
                f"trajectory {trajectory_id!r}: expected one whose task is stored, found none; leave it out"
            )
        task, known = started.task, tasks.get(started.task.id)
        if known is not None and task_line(known) != task_line(task):
            raise BadInputError(
                f"task {task.id!r}: expected one task of this id, found another of trajectory {trajectory_id!r}; leave"
                " one of the two out"
            )
        tasks[task.id] = task
    for task in tasks.values():
        yield task_line(task)


def export_dataset(store: Store, trajectory_ids: Sequence[str]) -> Iterator[bytes]:
    """Yield trajectories as lines of ``agent-layer store export jsonl``. Raises: NotFoundError, CorruptRecordError."""
    for row, trajectory in store.read([store.row(one) for one in dict.fromkeys(trajectory_ids)]):
        yield msgspec.json.encode(show_trajectory(row, trajectory)) + b"\n"


EXPORTS: Final[Mapping[str, Callable[[Store, Sequence[str]], Iterator[bytes]]]] = {
    "/export/tasks": export_tasks,
    "/export/dataset": export_dataset,
}
"""Lines by the path of the POST below the prefix; the body is an ``ExportOrder``."""
