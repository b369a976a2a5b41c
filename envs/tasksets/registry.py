"""Task sets by name: ours, and those that installed packages register under ``agent_layer.tasksets``."""

from importlib import import_module
from importlib.metadata import entry_points
from typing import Final, cast

from agent_layer.errors import BadInputError
from envs.tasksets.taskset import TaskSet

_OURS: Final = {"repair": "envs.tasksets.repair:Repair"}
_GROUP: Final = "agent_layer.tasksets"
_NEEDED: Final = ("name", "version", "levels", "agent", "tasks", "solve", "rewrites", "mutants", "cheats")


def list_taskset_names() -> list[str]:
    """Return the names of all registered task sets, ours first."""
    return [*_OURS, *sorted(set(entry_points(group=_GROUP).names) - set(_OURS))]


def open_taskset(name: str) -> TaskSet:
    """Return a task set.

    Args:
        name: registered, or ``module:attribute`` of a task set or of a class that makes one.

    Raises: BadInputError: there is none of this name, or what there is does not keep the protocol.
    """
    found = _find(name)
    taskset = _make(name, cast("type[object]", found)) if isinstance(found, type) else found
    if missing := [one for one in _NEEDED if not hasattr(taskset, one)]:
        raise BadInputError(f"task set {name!r}: lacks {', '.join(missing)}; the protocol is envs.tasksets.TaskSet")
    return cast("TaskSet", taskset)


def _make(name: str, kind: type[object]) -> object:
    try:
        return kind()
    except Exception as error:  # its constructor may raise anything
        raise BadInputError(
            f"task set {name!r}: {kind.__name__}() failed with {error!r}; name an object of it, or give its arguments"
            " defaults"
        ) from error


def _find(name: str) -> object:
    path = _OURS.get(name, name)
    if ":" not in path:
        known = entry_points(group=_GROUP)
        if name not in known.names:
            raise BadInputError(
                f"task set {name!r}: neither module:attribute nor a registered name (registered:"
                f" {', '.join(list_taskset_names())}); check the spelling"
            )
        return known[name].load()
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # a module may raise anything when it is imported
        raise BadInputError(
            f"task set {name!r}: cannot be imported as module:attribute, {error!r}; check the name and the directory"
            " that you start in"
        ) from error
