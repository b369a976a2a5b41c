"""Evaluation: rounds of rollouts that measure an agent and a model, and comparisons of rounds."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "evaluator": "EvalRequest RoundResult evaluate",
        "figures.figures": "RoundSettings",
        "held_out": "HeldOutEvaluator",
        "identity": "fingerprint_weights is_earlier_fingerprint",
        "rounds": "TaskSource",
        "tasks": "LoadedTasks load_tasks",
    },
)
