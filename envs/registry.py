"""This file holds how a name becomes an object: ``module:attribute``, or a name that an installed package
registered.

A package registers agents and environments in the entry-point group ``agent_layer.agents``, scorers in
``agent_layer.scorers``.

This file holds how code that judges or answers is told apart from what it was before: by its version.

A class or function may declare ``version``; raise it when what it says changes. Without one, the file in which it
stands is its version: changes in what that file imports are not seen.
"""

import inspect
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Literal, TypeAlias, cast

from agent_layer.errors import BadInputError
from agent_layer.schema import content_hash
from envs.environment import Environment

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


@cache
def hash_scorer(scorer: Callable[..., object]) -> str:
    """Name a scorer in its version: two scorers never share it, whatever versions they declare."""
    name = getattr(scorer, "__qualname__", type(scorer).__qualname__)
    return content_hash(f"{scorer.__module__}:{name} {code_version(scorer) or ''}".encode())


def code_version(code: Callable[..., object]) -> str | None:
    """What the code declares, else a hash of its file; None where it has neither."""
    if (declared := _declared_version(code)) is not None:
        return declared
    try:
        file = inspect.getsourcefile(inspect.unwrap(code))
    except TypeError:  # built in
        return None
    return content_hash(Path(file).read_bytes()) if file else None


def _declared_version(code: object) -> str | None:
    """What the code says of itself; None where it says nothing."""
    declared: object = getattr(code, "version", None)
    return str(declared) if isinstance(declared, str | int) else None


def describe_environment(name: str) -> tuple[str | None, str | None]:
    """Name and version of the environment that a worker's target is.

    Returns: no name where the target is no environment; no version where such a one declares none.

    Raises: BadInputError: there is no such target.
    """
    found = find_object(name, "agent")
    if isinstance(found, type) and issubclass(found, Environment):
        return name, code_version(found)
    return None, _declared_version(cast("object", found))
