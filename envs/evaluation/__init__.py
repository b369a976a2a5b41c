"""Evaluation: rounds of rollouts that measure an agent and a model, and comparisons of rounds."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.evaluation.evaluator import (
        EvalRequest as EvalRequest,
    )
    from envs.evaluation.evaluator import (
        RoundResult as RoundResult,
    )
    from envs.evaluation.evaluator import (
        evaluate as evaluate,
    )
    from envs.evaluation.evaluator import (
        list_rounds as list_rounds,
    )
    from envs.evaluation.evaluator import (
        show_round as show_round,
    )
    from envs.evaluation.figures import Yardstick as Yardstick
    from envs.evaluation.held_out import HeldOutEvaluator as HeldOutEvaluator
    from envs.evaluation.rounds import TaskSource as TaskSource
    from envs.evaluation.tasks import LoadedTasks as LoadedTasks
    from envs.evaluation.tasks import load_tasks as load_tasks
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.evaluation.evaluator": (
                "EvalRequest",
                "RoundResult",
                "evaluate",
                "list_rounds",
                "show_round",
            ),
            "envs.evaluation.figures": ("Yardstick",),
            "envs.evaluation.held_out": ("HeldOutEvaluator",),
            "envs.evaluation.rounds": ("TaskSource",),
            "envs.evaluation.tasks": ("LoadedTasks", "load_tasks"),
        },
    )
