"""Environments, the workers that run agents in them, and the scorers that judge the result."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.schema import Task, Trajectory
    from envs.env_context import EnvContext, ToolCalls, ToolDefinition, ToolResult, make_context
    from envs.environment import Environment, StepResult, ToolEnvironment
    from envs.grading import Scorer, ScoringContext, Verdict
    from envs.resume import resumable
    from tracer import Rollout
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.schema": (
                "Task",
                "Trajectory",
            ),
            "envs.env_context": (
                "EnvContext",
                "ToolCalls",
                "ToolDefinition",
                "ToolResult",
                "make_context",
            ),
            "envs.environment": (
                "Environment",
                "StepResult",
                "ToolEnvironment",
            ),
            "envs.grading": (
                "Scorer",
                "ScoringContext",
                "Verdict",
            ),
            "envs.resume": ("resumable",),
            "tracer": ("Rollout",),
        },
    )

__all__ = [
    "EnvContext",
    "Environment",
    "Rollout",
    "Scorer",
    "ScoringContext",
    "StepResult",
    "Task",
    "ToolCalls",
    "ToolDefinition",
    "ToolEnvironment",
    "ToolResult",
    "Trajectory",
    "Verdict",
    "make_context",
    "resumable",
]
