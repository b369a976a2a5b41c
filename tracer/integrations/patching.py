"""Import hooks: act right after a module is imported, and replace a function in loaded modules."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import cast


def after_import(name: str, act: Callable[[], object]) -> None:
    """Call ``act`` once the module is imported: now, if it is already."""
    if name in sys.modules:
        act()
        return
    if _WATCHER not in sys.meta_path:
        sys.meta_path.insert(0, _WATCHER)
    _WATCHER.waiting[name] = act


def replace_everywhere(original: object, replacement: object) -> None:
    """Replace an object in every loaded module that refers to it, 'from … import' included."""
    for module in list(sys.modules.values()):
        names = cast("dict[str, object]", getattr(module, "__dict__", {}))
        for name in [name for name, value in list(names.items()) if value is original]:
            names[name] = replacement


class _Watcher(MetaPathFinder):
    """Meta path finder that lets the other finders find the module, and extends its loader."""

    def __init__(self) -> None:
        self.waiting: dict[str, Callable[[], object]] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - part of the protocol; find_spec works it out itself
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol's
        /,
    ) -> ModuleSpec | None:
        act = self.waiting.pop(fullname, None)
        if act is None:
            return None
        try:
            spec = find_spec(fullname)
        finally:
            self.waiting[fullname] = act
        if spec is not None and spec.loader is not None:
            self._add_to(spec)
        return spec

    def _add_to(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        assert loader is not None
        execute = loader.exec_module

        def execute_then_act(module: ModuleType) -> None:
            execute(module)
            if (act := self.waiting.pop(spec.name, None)) is not None:
                act()

        loader.exec_module = execute_then_act


_WATCHER = _Watcher()
