# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .env_context import EnvContext as EnvContext, ToolCalls as ToolCalls, ToolDefinition as ToolDefinition
from .env_context import ToolResult as ToolResult, make_context as make_context
from .environment import Environment as Environment, StepResult as StepResult, ToolEnvironment as ToolEnvironment
from .grading import Scorer as Scorer, ScoringContext as ScoringContext, Verdict as Verdict
from .plug_ins import PlugIns as PlugIns
from .registry import code_version as code_version
from .resume import resumable as resumable
from agent_layer.schema import Task as Task, Trajectory as Trajectory
from tracer import Rollout as Rollout
__all__ = [
    "EnvContext", "Environment", "Rollout", "Scorer", "ScoringContext", "StepResult", "Task", "ToolCalls",
    "ToolDefinition", "ToolEnvironment", "ToolResult", "Trajectory", "Verdict", "make_context", "resumable",
]
