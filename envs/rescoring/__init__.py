"""Rescoring: a scorer judges stored trajectories again."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.rescoring.cli import register_rescore as register_rescore
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.rescoring.cli": ("register_rescore",),
        },
    )
