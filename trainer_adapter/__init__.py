"""Training: whole groups of rollouts in, policy versions out. ``train`` runs all of it on this machine."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "agent_layer.schema": "TrainingSample",
        "config": (
            "AlgorithmConfig EvaluationConfig HeldOutConfig LoraConfig OptimizerConfig RetentionConfig RolloutConfig"
            " Schedule SourceConfig TrainConfig load_config"
        ),
        "data": "CreditedValue JudgedRollout JudgedValues group_advantages samples_of",
        "losses": "LossTokens",
        "start": "train",
    },
)
