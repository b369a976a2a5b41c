"""Placement of worker processes: on this machine or on Ray."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.placement.placer import Where as Where
    from envs.placement.placer import Workforce as Workforce
    from envs.placement.placer import run_workers as run_workers
    from envs.placement.ray import join_ray as join_ray
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.placement.placer": (
                "Where",
                "Workforce",
                "run_workers",
            ),
            "envs.placement.ray": ("join_ray",),
        },
    )
