"""This file holds how a name becomes an object: ``module:attribute``, or a name that an installed package registered.

A package registers agents and environments in the entry-point group ``agent_layer.agents``, scorers in
``agent_layer.scorers``.
"""

from importlib import import_module
from importlib.metadata import entry_points
from typing import Literal, TypeAlias

from agent_layer.errors import BadInputError

__all__ = ["Kind", "find_object"]

Kind: TypeAlias = Literal["agent", "scorer"]


def find_object(name: str, kind: Kind) -> object:
    """Import what the name means.

    Raises: BadInputError: there is no such module, attribute or registered name, or the module does not import.
    """
    try:
        return _import(name) if ":" in name else _registered(name, kind)
    except BadInputError:
        raise
    except Exception as error:  # a module may raise anything when it is imported
        raise BadInputError(
            f"{kind} {name!r}: expected module:attribute that can be imported, found {error!r};"
            " check the name and the directory that you start in"
        ) from error


def _import(name: str) -> object:
    module_name, _, attribute = name.partition(":")
    found: object = import_module(module_name)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def _registered(name: str, kind: Kind) -> object:
    known = entry_points(group=f"agent_layer.{kind}s")
    if name in known.names:
        return known[name].load()
    raise BadInputError(
        f"{kind} {name!r}: expected module:attribute or a registered name, found"
        f" {', '.join(sorted(known.names)) or 'none'} registered; check the spelling"
    )
