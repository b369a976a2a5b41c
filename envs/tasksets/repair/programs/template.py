"""Templates: small modules whose behaviour is known, from which repositories are generated."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

import msgspec

_FOLDER: Final = Path(__file__).parent / "templates"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as data."""

    name: str
    """A function; a class, whose instance becomes the subject; or ``.method`` of the subject."""
    args: list[object]
    """Plain JSON values."""


Case = Sequence[Call]
"""Calls in order. What each returns, or the name of what it raises, is the case's outcome."""


class Template(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One module, written twice, and how to draw calls of it."""

    name: str
    """Stem of its file."""
    source: str
    """At least two functions or classes; each uses only earlier ones. ASCII, without f-strings: their positions in the
    syntax tree depend on the version of Python."""
    independent: str
    """The same behaviour, written without a look at ``source``."""
    names: Mapping[str, tuple[str, ...]]
    """Identifiers of both sources, and what else they may be called."""
    draw: Callable[[Random], Case]
    """Return one random case."""
    edges: Sequence[Case]
    """Cases at the borders of the behaviour, which random ones seldom meet."""


def read_template(name: str, draw: Callable[[Random], Case]) -> Template:
    """Return the template of a file, with what draws cases of it."""
    found = tomllib.loads((_FOLDER / f"{name}.toml").read_text("utf-8"))
    edges = [[call(*one) for one in case] for case in found.pop("edges")]
    return msgspec.convert({"name": name, "draw": draw, "edges": edges, **found}, Template)


def call(name: str, *args: object) -> Call:
    """Return one call."""
    return Call(name=name, args=list(args))
