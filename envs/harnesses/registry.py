"""Harnesses by name: ours, and those that installed packages register under ``agent_layer.harnesses``."""

from importlib.metadata import entry_points
from typing import Final

from agent_layer.errors import BadInputError
from envs.harnesses.catalogue import HARNESSES
from envs.harnesses.harness import Harness

_GROUP: Final = "agent_layer.harnesses"


def list_harness_names() -> list[str]:
    """Return the names of all harnesses, ours first."""
    return [*HARNESSES, *sorted(set(entry_points(group=_GROUP).names) - set(HARNESSES))]


def find_harness(name: str) -> Harness:
    """Return the declaration of this name.

    Raises: BadInputError: there is none, or what a package registers is none.
    """
    if name in HARNESSES:
        return HARNESSES[name]
    known = entry_points(group=_GROUP)
    if name not in known.names:
        raise BadInputError(
            f"harness {name!r}: expected one of {', '.join(list_harness_names())}; check the spelling, or register your"
            f" own under the entry point {_GROUP}"
        )
    try:
        found: object = known[name].load()
    except Exception as error:  # a module may raise anything when it is imported
        raise BadInputError(
            f"harness {name!r}: cannot be imported, {error!r}; correct the package that registers it"
        ) from error
    if not isinstance(found, Harness):
        raise BadInputError(
            f"harness {name!r}: expected an envs.harnesses.Harness, found a {type(found).__name__}; correct the package"
            " that registers it"
        )
    return found
