"""The store: Redis index over segments in S3 or a directory. ``open_store()`` opens it for reading."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_layer.store.store import Store, open_store

__all__ = ["Store", "open_store"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from agent_layer.store import store  # noqa: PLC0415  # parts of this package are imported without the rest

        return getattr(store, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
