"""Tasks and settings of the demo, which were found to train reliably."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from envs.tasksets import HIGHEST, REWARDS
from trainer_adapter.config import (
    AlgorithmConfig,
    OptimizerConfig,
    RetentionConfig,
    RolloutConfig,
    Schedule,
    SourceConfig,
    TrainConfig,
)
from trainer_adapter.selection import SuccessShare


@dataclass(frozen=True)
class Recipe:
    """Options of the demo beside the trainer's configuration."""

    target: str = "guess_number"
    slots: int = 16
    group_size: int = 10


RECIPE = Recipe()


def make_config(home: Path, run: str, seed: int, steps: int) -> TrainConfig:
    """Return the configuration of the trainer; ``home`` is the run's directory, with the model in it."""
    return TrainConfig(
        model=home / "model",
        tasks=[SourceConfig(path=home / "tasks.jsonl")],
        run=run,
        steps=steps,
        seed=seed,
        rollouts=RolloutConfig(group_size=RECIPE.group_size, max_staleness=0, curriculum=SuccessShare(floor=0.3)),
        algorithm=AlgorithmConfig(entropy=Schedule(start=0.03, end=0.015, shape="linear")),
        optimizer=OptimizerConfig(
            learning_rate=Schedule(start=1e-3, end=1e-4, shape="cosine"),
            minibatches=2,
            epochs=2,
            betas=(0.9, 0.95),
        ),
        keep=RetentionConfig(checkpoint_steps=10),
    )


def write_tasks(path: Path) -> None:
    """Write one task per hidden number, scored by the agent itself."""
    rewards = {name: {"weight": weight} for name, weight in REWARDS.items()}
    tasks = [
        {
            "id": f"guess-{hidden}",
            "task_type": "guess_number",
            "input": {"hidden": hidden},
            "scorer": "agent",
            "rewards": rewards,
        }
        for hidden in range(1, HIGHEST + 1)
    ]
    path.write_bytes(b"".join(msgspec.json.encode(task) + b"\n" for task in tasks))
