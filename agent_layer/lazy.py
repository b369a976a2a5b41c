"""Lazy faces of packages: a name loads the file that defines it when it is first used (PEP 562)."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package that lists its face and imports nothing.

    Args:
        package: ``__name__`` of the package.
        homes: module that defines names, to those names.

    The branch under ``TYPE_CHECKING`` beside it lists the same names for type checkers; a test compares the two.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(home_of[name])
        value = getattr(module, name) if home_of[name] != package else import_module(f"{package}.{name}")
        setattr(sys.modules[package], name, value)
        return value

    return load
