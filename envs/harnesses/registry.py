"""Harnesses by name: ours, and those that installed packages register under ``agent_layer.harnesses``."""

from typing import Final

from agent_layer.errors import BadInputError
from envs.harnesses.catalogue import HARNESSES
from envs.harnesses.harness import Harness
from envs.plug_ins import PlugIns

_HARNESSES: Final = PlugIns("agent_layer.harnesses", "harness", HARNESSES)

list_harness_names: Final = _HARNESSES.list_names


def find_harness(name: str) -> Harness:
    """Return the declaration of this name.

    Raises: BadInputError: there is none, or what a package registers is none.
    """
    found = _HARNESSES.find(name)
    if not isinstance(found, Harness):
        raise BadInputError(
            f"harness {name!r}: expected an envs.harnesses.Harness, found a {type(found).__name__}; correct the package"
            " that registers it"
        )
    return found
