"""Code repair: generated repositories with bugs, by seed and level."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.tasksets.repair.agents import independent as independent
    from envs.tasksets.repair.agents import near_miss as near_miss
    from envs.tasksets.repair.agents import reference as reference
    from envs.tasksets.repair.environment import RepairEnvironment as RepairEnvironment
    from envs.tasksets.repair.repair import Repair as Repair
    from envs.tasksets.repair.scorer import RepairScorer as RepairScorer
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.tasksets.repair.agents": ("independent", "near_miss", "reference"),
            "envs.tasksets.repair.environment": ("RepairEnvironment",),
            "envs.tasksets.repair.repair": ("Repair",),
            "envs.tasksets.repair.scorer": ("RepairScorer",),
        },
    )

__all__ = ["Repair", "RepairEnvironment", "RepairScorer", "independent", "near_miss", "reference"]
