"""Objects by name: ours, those that installed packages register under an entry point, and ``module:attribute``."""

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module, metadata
from typing import NamedTuple, cast

from agent_layer.errors import BadInputError


def entry_points(group: str) -> metadata.EntryPoints:
    """Return what installed packages register. A look-up takes milliseconds, so each path is looked at once."""
    return _read_entry_points(group, tuple(sys.path))


@cache
def _read_entry_points(group: str, path: tuple[str, ...]) -> metadata.EntryPoints:
    del path  # what it reads
    return metadata.entry_points(group=group)


class PlugIns(NamedTuple):
    """One group of them."""

    group: str
    """Entry-point group of other packages."""
    what: str
    """Names one of them in errors."""
    ours: Mapping[str, object] = {}
    """Objects, or their ``module:attribute``, which is imported when it is asked for; they win over others' names."""
    takes_paths: bool = False
    """``module:attribute`` is a name, too."""
    families: Mapping[str, str] = {}
    """``module:function`` by prefix: the object named ``PREFIX:REST`` is what the function returns for ``REST``."""

    def list_names(self) -> list[str]:
        """Return all names, ours first."""
        return [*self.ours, *sorted(set(entry_points(group=self.group).names) - set(self.ours))]

    def find(self, name: str) -> object:
        """Return the object of this name.

        Raises: BadInputError: there is none, or its module fails to import.
        """
        found = self.ours.get(name)
        if found is not None:
            return import_object(found) if isinstance(found, str) else found
        load = self._find_loader(name)
        try:
            return load()
        except BadInputError:
            raise
        except Exception as error:  # a module may raise anything when it is imported
            raise BadInputError(
                f"{self.what} {name!r}: cannot be imported, {error!r}; check the name and the directory that you start"
                " in, or correct the package that registers it"
            ) from error

    def _find_loader(self, name: str) -> Callable[[], object]:
        prefix, _, rest = name.partition(":")
        if rest and prefix in self.families:
            return lambda: cast("Callable[[str], object]", import_object(self.families[prefix]))(rest)
        if self.takes_paths and ":" in name:
            return lambda: import_object(name)
        known = entry_points(group=self.group)
        if name in known.names:
            return known[name].load
        names = ", ".join(self.list_names()) or "none"
        if self.takes_paths:
            raise BadInputError(
                f"{self.what} {name!r}: neither module:attribute nor a registered name (registered: {names}); check the"
                " spelling"
            )
        raise BadInputError(
            f"{self.what} {name!r}: expected one of {names}; check the spelling, or register your own under the entry"
            f" point {self.group}"
        )


def import_object(path: str) -> object:
    """Import ``module:attribute``; raises what the module raises."""
    module_name, _, attribute = path.partition(":")
    found: object = import_module(module_name)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            own = [name for name, one in vars(found).items() if getattr(one, "__module__", None) == module_name]
            raise AttributeError(f"{error}; it has: {', '.join(own) or 'none of its own'}") from error
    return found
