"""Lazy faces of packages: a name loads the file that defines it when it is first used (PEP 562)."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType

_NO_NAMES: Mapping[str, str] = MappingProxyType({})


def face(
    package: str, public: Mapping[str, str], internal: Mapping[str, str] = _NO_NAMES
) -> tuple[Callable[[str], object], list[str]]:
    """Return ``__getattr__`` and ``__all__`` of a package that lists its face and imports nothing.

    Args:
        package: ``__name__`` of the package.
        public: module to the names that it defines, with spaces between. A module stands relative to the package,
            unless it begins with ``agent_layer``, ``tracer`` or the package's root. Without names, it is itself a name.
        internal: the same for names that only other rooms import; they are not in ``__all__``.

    Type checkers read the ``__init__.pyi`` beside it, which ``.ci/write_faces.py`` writes from these tables.
    """
    roots = {"agent_layer", "tracer", package.partition(".")[0]}
    home_of: dict[str, str] = {}
    for home, names in (*public.items(), *internal.items()):
        module = home if home.partition(".")[0] in roots else f"{package}.{home}"
        home_of |= dict.fromkeys(names.split() or [home], module)
    exported = [name for home, names in public.items() for name in names.split() or [home]]

    def load(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(home_of[name])
        value = module if home_of[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return load, exported
