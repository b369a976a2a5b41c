"""Hooks into frameworks and clients; each loads when its library does."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from tracer.integrations.install import instrument as instrument
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "tracer.integrations.install": ("instrument",),
        },
    )
