"""Environments, the workers that run agents in them, and the scorers that judge the result."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.schema import Task, Trajectory
    from envs.environment import Environment, StepResult
    from envs.resume import resumable
    from envs.scorers import Scorer
    from tracer import Rollout
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.schema": (
                "Task",
                "Trajectory",
            ),
            "envs.environment": (
                "Environment",
                "StepResult",
            ),
            "envs.resume": ("resumable",),
            "envs.scorers": ("Scorer",),
            "tracer": ("Rollout",),
        },
    )

__all__ = ["Environment", "Rollout", "Scorer", "StepResult", "Task", "Trajectory", "resumable"]
