"""Published algorithms: formula, source and defaults, one file each."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.algorithms.papers.algorithm import Algorithm as Algorithm
    from trainer_adapter.algorithms.papers.algorithm import Estimator as Estimator
    from trainer_adapter.algorithms.papers.algorithm import KlEstimator as KlEstimator
    from trainer_adapter.algorithms.papers.algorithm import Loss as Loss
    from trainer_adapter.algorithms.papers.algorithm import LossMean as LossMean
    from trainer_adapter.algorithms.papers.registry import ALGORITHMS as ALGORITHMS
    from trainer_adapter.algorithms.papers.registry import CLIP_BOUNDS as CLIP_BOUNDS
    from trainer_adapter.algorithms.papers.registry import DEFAULT as DEFAULT
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.algorithms.papers.algorithm": (
                "Algorithm",
                "Estimator",
                "KlEstimator",
                "Loss",
                "LossMean",
            ),
            "trainer_adapter.algorithms.papers.registry": (
                "ALGORITHMS",
                "CLIP_BOUNDS",
                "DEFAULT",
            ),
        },
    )
