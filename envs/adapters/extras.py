"""What adapters share: packages that an extra brings, and names with options such as ``chain_sum?max_terms=4``."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.infra import install_command
from agent_layer.schema import JsonObject

Made = TypeVar("Made")


def run_apart(work: Coroutine[None, None, Made]) -> Made:
    """Return what a coroutine does, from code that is not async, whether a loop runs here or not."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def check_extra(module: str, extra: str) -> None:
    """Check that a package that an extra brings is installed, without importing it.

    Raises: BadInputError: it is not.
    """
    if find_spec(module) is None:
        raise BadInputError(
            f"adapter {extra!r}: expected its package to be installed, found no {module!r}; {install_command(extra)}"
        )


def import_extra(module: str, extra: str) -> ModuleType:
    """Import a module of a package that an extra brings; raises as ``check_extra`` does."""
    check_extra(module.partition(".")[0], extra)
    return import_module(module)


def read_options(text: str) -> tuple[str, JsonObject]:
    """Return the name and the options of ``NAME?option=value&option=value``; values are JSON, else text.

    Raises: BadInputError: an option has no value.
    """
    name, _, query = text.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise BadInputError(f"adapter {text!r}: expected NAME?option=value&option=value; correct it") from error
    return name, {option: _read_value(value) for option, value in pairs}


def _read_value(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
