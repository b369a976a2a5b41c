"""The queue with both of its faces in one object, for tests that submit and work."""

from collections.abc import Iterable, Sequence
from typing import Any

from agent_layer.dispatcher import Dispatcher, WorkerQueue
from agent_layer.dispatcher.scripts import Scripts
from agent_layer.dispatcher.submission import add_groups
from agent_layer.schema import Task, make_group_id


class Queue(WorkerQueue):
    """A worker's queue; what is not a worker's passes to the dispatcher of the same namespace."""

    def __init__(self, redis: Any, keys: Any, settings: Any, **options: Any) -> None:
        super().__init__(redis, keys, settings, **options)
        self.dispatcher = Dispatcher(redis, settings.model_copy(update={"namespace": keys.namespace}))
        self.scripts = Scripts(redis, keys, settings)
        self.views = self.dispatcher.inspector

    def add(self, tasks: Iterable[Task], round_index: int = 0) -> list[str]:
        groups = [(make_group_id(task.run, task.id, round_index), task) for task in tasks]
        add_groups(self.scripts, groups)
        return [group_id for group_id, _ in groups]

    def cancel(self, group_ids: Sequence[str]) -> int:
        return self.dispatcher.cancel(group_ids)

    def reap(self) -> int:
        return self.scripts.reap()

    def pause(self, run: str, why: str = "", *, leased_too: bool = False) -> None:
        self.dispatcher.pause(run, running=leased_too, why=why)

    def resume(self, run: str) -> None:
        self.dispatcher.resume(run)


def open_queue(dispatcher: Dispatcher) -> Queue:
    """Return the queue of the dispatcher's namespace, on the same connection."""
    scripts = dispatcher._scripts
    return Queue(scripts.redis, scripts.keys, scripts.settings)
