"""Filters of system calls as boxes load them, one per machine, and the assembler that writes them."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.sandbox.inside.filters.assembler import assemble_filter as assemble_filter
else:
    __getattr__ = lazy_exports(__name__, {"envs.sandbox.inside.filters.assembler": ("assemble_filter",)})
