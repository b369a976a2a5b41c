"""Figures of rounds: estimators, what a round found out, comparisons. Pure."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.evaluation.figures.comparison import (
        Comparison as Comparison,
    )
    from envs.evaluation.figures.comparison import (
        compare_results as compare_results,
    )
    from envs.evaluation.figures.estimates import Estimate as Estimate
    from envs.evaluation.figures.figures import (
        Figures as Figures,
    )
    from envs.evaluation.figures.figures import (
        MeasuredAttempt as MeasuredAttempt,
    )
    from envs.evaluation.figures.figures import (
        TaskRef as TaskRef,
    )
    from envs.evaluation.figures.figures import (
        TaskResult as TaskResult,
    )
    from envs.evaluation.figures.figures import (
        Yardstick as Yardstick,
    )
    from envs.evaluation.figures.figures import (
        collect_results as collect_results,
    )
    from envs.evaluation.figures.figures import (
        compute_figures as compute_figures,
    )
    from envs.evaluation.figures.figures import (
        count_causes as count_causes,
    )
    from envs.evaluation.figures.figures import (
        mean_pass_rate as mean_pass_rate,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.evaluation.figures.comparison": ("Comparison", "compare_results"),
            "envs.evaluation.figures.estimates": ("Estimate",),
            "envs.evaluation.figures.figures": (
                "Figures",
                "MeasuredAttempt",
                "TaskRef",
                "TaskResult",
                "Yardstick",
                "collect_results",
                "compute_figures",
                "count_causes",
                "mean_pass_rate",
            ),
        },
    )
