"""Where TransferQueue has the rows of veRL's run: actors on the machine of the trainer."""

from contextlib import suppress

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from transfer_queue import interface
from transfer_queue.storage.bootstrap import simple_storage_bootstrap

from trainer_adapter.cluster.nodes.checks import ROWS
from trainer_adapter.cluster.nodes.watch import ServerProcesses, find_own_process

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportAttributeAccessIssue=false
# TransferQueue and Ray carry few types.

_STORE = "TransferQueueStorageUnit#0"


class OnOwnMachine:
    """Actors on the machine of this process. They reserve nothing, because a head often offers nothing."""

    def __init__(self, actor: object, **options: object) -> None:
        self._actor, self._options = actor, options

    def options(self, **options: object) -> "OnOwnMachine":
        """Return one with further options of Ray."""
        return type(self)(self._actor, **(self._options | options))

    def remote(self, *arguments: object, **named: object) -> object:
        """Start one, as the method of an actor's class does."""
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options = {**self._options, "num_cpus": 0, "scheduling_strategy": here}
        return self._actor.options(**options).remote(*arguments, **named)  # pyright: ignore[reportAttributeAccessIssue]


def keep_rows_here() -> None:
    """Let TransferQueue have its rows on this machine, where only the end of this process loses them.

    It would put its controller on any machine, and its store on that with the smallest id, even one without a CPU. A
    call to a controller that died with its machine has no time-out.
    """
    interface.TransferQueueController = OnOwnMachine(interface.TransferQueueController)
    simple_storage_bootstrap.SimpleStorageUnit = OnOwnMachine(simple_storage_bootstrap.SimpleStorageUnit)


def find_rows() -> list[ServerProcesses]:
    """Return the processes that have the rows. Called where ``keep_rows_here`` was, once the queue has begun."""
    name, namespace = ROWS
    actors = {"rows' controller": ray.get_actor(name, namespace=namespace)}
    with suppress(ValueError):  # another backend of TransferQueue, which 'verl' may name, has none
        actors["rows' store"] = ray.get_actor(_STORE)
    return ray.get([actor.__ray_call__.remote(_find_process, name) for name, actor in actors.items()])


def _find_process(_: object, name: str) -> ServerProcesses:
    return find_own_process(name)
