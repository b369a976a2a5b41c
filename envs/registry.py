"""Finds agents, environments, scorers and tools by name, and hashes their versions.

A name is ``module:attribute``, or one that an installed package registers: agents and environments in the entry-point
group ``agent_layer.agents``, scorers in ``agent_layer.scorers``, tools in ``agent_layer.tools``. Adapters have names
such as ``gymnasium:Taxi-v4``.

A class or function may declare ``version``; raise it when its answers change. Without one, the hash of its file is its
version: changes in files that it imports do not count.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast

from agent_layer.errors import BadInputError
from agent_layer.schema import content_hash
from agent_layer.schema.sandbox import SandboxSpec
from envs.environment import Environment
from envs.plug_ins import PlugIns

Kind: TypeAlias = Literal["agent", "scorer", "tool"]
_ADAPTERS: Final[dict[Kind, dict[str, str]]] = {"agent": {"gymnasium": "envs.adapters.gymnasium:open_environment"}}
"""Functions of ``envs.adapters`` by kind and prefix."""


def find_object(name: str, kind: Kind) -> object:
    """Import the object of this name.

    Raises: BadInputError: no such module, attribute or registered name exists, or its module fails to import.
    """
    return PlugIns(f"agent_layer.{kind}s", kind, takes_paths=True, families=_ADAPTERS.get(kind, {})).find(name)


@cache
def hash_scorer(scorer: object) -> str:
    """Return a hash of a scorer's name and version; two scorers never share it.

    Args: scorer: a function, or an object whose class judges. Objects of one class differ by the version they declare.
    """
    code: object = scorer if hasattr(scorer, "__qualname__") else type(scorer)
    name = getattr(code, "__qualname__", "")
    version = _declared_version(scorer) or code_version(code)
    return content_hash(f"{code.__module__}:{name} {version or ''}".encode())


def code_version(code: object) -> str | None:
    """Return the declared version, else a hash of its file; None: it has neither."""
    if (declared := _declared_version(code)) is not None:
        return declared
    try:
        file = inspect.getsourcefile(inspect.unwrap(cast("Callable[..., object]", code)))
    except TypeError:  # built in
        return None
    return content_hash(Path(file).read_bytes()) if file else None


def _declared_version(code: object) -> str | None:
    """Return the version that the code declares; None: none."""
    declared: object = getattr(code, "version", None)
    return str(declared) if isinstance(declared, str | int) else None


def describe_environment(name: str) -> tuple[str | None, str | None]:
    """Return name and version of the environment that a worker's target is.

    Returns: no name where the target is no environment; then no version unless the target declares one.

    Raises: BadInputError: no such target exists.
    """
    found = find_object(name, "agent")
    if isinstance(found, type) and issubclass(found, Environment):
        return name, code_version(found)
    return None, _declared_version(cast("object", found))


def declared_artifacts(name: str) -> list[str]:
    """Return the paths that a worker's target declares as its attribute ``artifacts``; empty: it declares none.

    Raises: BadInputError: no such target exists, or the attribute is no list of paths.
    """
    declared: object = getattr(find_object(name, "agent"), "artifacts", None) or []
    paths = list(cast("Sequence[object]", declared)) if isinstance(declared, list | tuple) else [declared]
    if not isinstance(declared, list | tuple) or not all(isinstance(path, str) for path in paths):
        raise BadInputError(
            f"agent {name!r}: expected its attribute 'artifacts' to be a list of paths, found {declared!r:.100};"
            " write paths below the sandbox's work directory"
        )
    return cast("list[str]", paths)


def declared_sandbox(name: str) -> SandboxSpec | None:
    """Return the spec that a worker's target declares as its attribute ``sandbox``; None: it declares none.

    Raises: BadInputError: no such target exists, or the attribute is no spec.
    """
    declared: object = getattr(find_object(name, "agent"), "sandbox", None)
    if declared is None or isinstance(declared, SandboxSpec):
        return declared
    raise BadInputError(
        f"agent {name!r}: expected its attribute 'sandbox' to be a SandboxSpec, found a {type(declared).__name__};"
        " write SandboxSpec() for the default"
    )
