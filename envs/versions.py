"""This file holds how code that judges or answers is told apart from what it was before: by its version.

A class or function may declare ``version``; raise it when what it says changes. Without one, the file in which it
stands is its version: changes in what that file imports are not seen.
"""

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import cast

from agent_layer.schema.ids import content_hash
from envs.environment import Environment

__all__ = ["declared_version", "env_version_of", "version_of"]


@cache
def version_of(code: Callable[..., object]) -> str | None:
    """What the code declares, else a hash of its file and name; None where it has neither."""
    if (declared := declared_version(code)) is not None:
        return declared
    try:
        file = inspect.getsourcefile(inspect.unwrap(code))
    except TypeError:  # built in
        return None
    return content_hash(Path(file).read_bytes() + f"\n{code.__qualname__}".encode()) if file else None


def declared_version(code: object) -> str | None:
    """What the code says of itself; None where it says nothing."""
    declared: object = getattr(code, "version", None)
    return str(declared) if isinstance(declared, str | int) else None


def env_version_of(target: object) -> str | None:
    """Version of the environment that a worker plays in; None where the target is none and declares nothing."""
    if isinstance(target, type) and issubclass(target, Environment):
        return version_of(target)
    return declared_version(cast("object", target))
