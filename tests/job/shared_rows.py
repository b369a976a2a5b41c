"""A program of torchrun: one update of a recorded batch, rows shared among processes; its numbers and its gradient.

torchrun … shared_rows.py HOME        HOME has ``train.json`` and ``batch``; writes ``found.json`` and ``gradient.pt``
"""

import json
import pickle
import sys
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from trainer_adapter.config import TrainConfig, load_config
from trainer_adapter.data import TrainingBatch
from trainer_adapter.verl import EmbeddedTrainer

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# veRL carries no types.


def compute_update(config: TrainConfig, batch: TrainingBatch) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """Return metrics of an update, and the whole gradient of its last optimizer step by the name of each weight."""
    trainer = EmbeddedTrainer(config)
    engine = trainer._worker.engine
    gradient: dict[str, torch.Tensor] = {}
    make_step = engine.optimizer_step

    def keep_gradient() -> float:
        for name, weight in engine.module.named_parameters():
            found = weight.grad
            gradient[name] = (found.full_tensor() if isinstance(found, DTensor) else found).clone()
        return make_step()

    engine.optimizer_step = keep_gradient
    report = trainer.update(batch, 0, version=1)
    return report.metrics | {"entropy": report.entropy}, gradient


if __name__ == "__main__":
    home = Path(sys.argv[1])
    found, gradient = compute_update(load_config(home / "train.json"), pickle.loads((home / "batch").read_bytes()))
    if torch.distributed.get_rank() == 0:
        (home / "found.json").write_text(json.dumps(found))
        torch.save(gradient, home / "gradient.pt")
