"""Kinds of sandboxes that come with the project."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.sandbox.kinds.namespace import NamespaceKind as NamespaceKind
    from envs.sandbox.kinds.process import ProcessKind as ProcessKind
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.sandbox.kinds.namespace": ("NamespaceKind",),
            "envs.sandbox.kinds.process": ("ProcessKind",),
        },
    )
