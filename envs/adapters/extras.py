"""Packages of others, imported when they are used: the error of one that is absent names the extra that brings it."""

from importlib import import_module
from types import ModuleType

from agent_layer.errors import BadInputError
from agent_layer.infra import install_command


def import_extra(module: str, extra: str) -> ModuleType:
    """Import a module of a package that an extra brings.

    Raises: BadInputError: it is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise BadInputError(
            f"adapter {extra!r}: expected its package to be installed, found no {error.name!r}; {install_command(extra)}"
        ) from error
