"""Warm starts: imitation (SFT) and preference (DPO) on exported datasets, before the policy plays itself."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "config": "Method SupervisedConfig load_supervised",
        "train": "SupervisedStep read_input train_supervised",
    },
)
