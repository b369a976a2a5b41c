"""Environments, the workers that run agents in them, and the scorers that judge the result."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "agent_layer.schema": "Task Trajectory",
        "env_context": "EnvContext ToolCalls ToolDefinition ToolResult make_context",
        "environment": "Environment StepResult ToolEnvironment",
        "grading": "Scorer ScoringContext Verdict",
        "resume": "resumable",
        "tracer": "Rollout",
    },
    {"plug_ins": "PlugIns", "registry": "code_version"},
)
