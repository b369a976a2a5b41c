"""Training: whole groups of rollouts in, policy versions out. ``train`` runs all of it on this machine."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.schema import TrainingSample
    from trainer_adapter.config import (
        AlgorithmConfig,
        EvaluationConfig,
        HeldOutConfig,
        LoraConfig,
        OptimizerConfig,
        RetentionConfig,
        RolloutConfig,
        Schedule,
        SourceConfig,
        TrainConfig,
        load_config,
    )
    from trainer_adapter.data import group_advantages, samples_of
    from trainer_adapter.start import train
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.schema": ("TrainingSample",),
            "trainer_adapter.config": (
                "AlgorithmConfig",
                "EvaluationConfig",
                "HeldOutConfig",
                "LoraConfig",
                "OptimizerConfig",
                "RetentionConfig",
                "RolloutConfig",
                "Schedule",
                "SourceConfig",
                "TrainConfig",
                "load_config",
            ),
            "trainer_adapter.data": (
                "group_advantages",
                "samples_of",
            ),
            "trainer_adapter.start": ("train",),
        },
    )

__all__ = [
    "AlgorithmConfig",
    "EvaluationConfig",
    "HeldOutConfig",
    "LoraConfig",
    "OptimizerConfig",
    "RetentionConfig",
    "RolloutConfig",
    "Schedule",
    "SourceConfig",
    "TrainConfig",
    "TrainingSample",
    "group_advantages",
    "load_config",
    "samples_of",
    "train",
]
