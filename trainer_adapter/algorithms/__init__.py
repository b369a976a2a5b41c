"""What veRL computes from the rewards: options, the defaults of published algorithms, and what both amount to.

A new algorithm is one file in ``papers`` and one line in its registry.
"""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.algorithms.options import AlgorithmConfig as AlgorithmConfig
    from trainer_adapter.algorithms.options import CorrectionConfig as CorrectionConfig
    from trainer_adapter.algorithms.options import Credit as Credit
    from trainer_adapter.algorithms.options import DistillConfig as DistillConfig
    from trainer_adapter.algorithms.options import OverlongPenalty as OverlongPenalty
    from trainer_adapter.algorithms.options import RejectionRule as RejectionRule
    from trainer_adapter.algorithms.options import TeacherConfig as TeacherConfig
    from trainer_adapter.algorithms.resolve import ResolvedAlgorithm as ResolvedAlgorithm
    from trainer_adapter.algorithms.resolve import resolve_algorithm as resolve_algorithm
    from trainer_adapter.algorithms.schedule import Schedule as Schedule
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.algorithms.options": (
                "AlgorithmConfig",
                "CorrectionConfig",
                "Credit",
                "DistillConfig",
                "OverlongPenalty",
                "RejectionRule",
                "TeacherConfig",
            ),
            "trainer_adapter.algorithms.resolve": (
                "ResolvedAlgorithm",
                "resolve_algorithm",
            ),
            "trainer_adapter.algorithms.schedule": ("Schedule",),
        },
    )
