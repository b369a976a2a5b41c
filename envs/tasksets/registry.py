"""Task sets by name: ours, and those that installed packages register under ``agent_layer.tasksets``."""

from pathlib import Path
from typing import Final, cast, get_args

from agent_layer.errors import BadInputError
from agent_layer.schema import Holdout
from envs.plug_ins import PlugIns
from envs.tasksets.harbor import HarborTasks
from envs.tasksets.taskset import TaskSet

_OURS: Final = {
    "repair": "envs.tasksets.repair:Repair",
    "arithmetic": "envs.tasksets.arithmetic:Arithmetic",
    "search": "envs.tasksets.search.search:Search",
    "terminal": "envs.tasksets.terminal.terminal:Terminal",
}
_ADAPTERS: Final = {
    "inspect": "envs.adapters.foreign_set:open_inspect",
    "openenv": "envs.adapters.openenv:open_set",
    "reasoning-gym": "envs.adapters.reasoning_gym:open_set",
    "verifiers": "envs.adapters.foreign_set:open_verifiers",
}
_TASKSETS: Final = PlugIns("agent_layer.tasksets", "task set", _OURS, takes_paths=True, families=_ADAPTERS)
_NEEDED: Final = ("name", "version", "levels", "agent", "tasks", "solve", "rewrites", "mutants", "cheats")

list_taskset_names: Final = _TASKSETS.list_names


def open_taskset(name: str) -> TaskSet:
    """Return a task set.

    Args:
        name: registered, ``module:attribute`` of a task set or of a class that makes one, a folder of Harbor tasks, or
            ``PACKAGE:NAME`` of an adapter, such as ``reasoning-gym:chain_sum``.

    Raises: BadInputError: there is none of this name, or what there is does not keep the protocol.
    """
    if name not in list_taskset_names() and Path(name).is_dir():
        return HarborTasks(Path(name))
    found = _TASKSETS.find(name)
    taskset = _make(name, cast("type[object]", found)) if isinstance(found, type) else found
    if missing := [one for one in _NEEDED if not hasattr(taskset, one)]:
        raise BadInputError(f"task set {name!r}: lacks {', '.join(missing)}; the protocol is envs.tasksets.TaskSet")
    return cast("TaskSet", taskset)


def read_holdout(taskset: TaskSet) -> Holdout:
    """Return what a task set declares as ``holdout``; ``exact`` where it declares nothing.

    Raises: BadInputError: it declares something else.
    """
    declared: object = getattr(taskset, "holdout", "exact")
    if declared not in get_args(Holdout):
        raise BadInputError(
            f"task set {taskset.name!r}: expected holdout {' or '.join(get_args(Holdout))}, found {declared!r}; correct"
            " it"
        )
    return cast("Holdout", declared)


def _make(name: str, kind: type[object]) -> object:
    try:
        return kind()
    except Exception as error:  # its constructor may raise anything
        raise BadInputError(
            f"task set {name!r}: {kind.__name__}() failed with {error!r}; name an object of it, or give its arguments"
            " defaults"
        ) from error
