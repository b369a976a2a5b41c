"""Two steps of TRL's GRPOTrainer over our rollouts, run by an interpreter that has TRL: ``trl_run.py MODEL TASKS OUT``.

It writes what got a gradient: for each row of each training pass the ids, and the places whose logits had one.
With ``SPOILED`` in the environment, one id that the policy sampled is another one when TRL gets it.
"""

import json
import os
import sys
from functools import partial
from pathlib import Path

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from agent_layer.dispatcher import read_tasks
from trainer_adapter.foreign import TrlRollouts

GENERATIONS = 4
seen: list[dict[str, object]] = []
"""[num_rows_of_all_passes]."""


def note_gradient(
    ids: torch.Tensor, attended: torch.Tensor, logprobs: torch.Tensor, step: int, gradient: torch.Tensor
) -> None:
    """Remember which tokens of a pass got a gradient; each log-probability is of the token behind its place."""
    for row, is_real, computed, pull in zip(ids, attended.bool(), logprobs, gradient, strict=True):
        start = int(is_real.int().argmax())  # rows are padded on both sides
        places = (pull.nonzero()[:, 0] + 1).tolist()
        seen.append(
            {
                "step": step,
                "ids": row[is_real].tolist(),
                "trained": {place - start: computed[place - 1].item() for place in places},
            }
        )


def look(trainer: GRPOTrainer, _module, _arguments, options, output) -> None:
    """Look at each pass that is trained."""
    if output.log_probs.requires_grad:
        known = options["input_ids"], options["attention_mask"], output.log_probs.detach(), trainer.state.global_step
        output.log_probs.register_hook(partial(note_gradient, *known))


def spoil(rollouts: TrlRollouts, prompts, trainer):
    """Return the rows with one sampled id changed."""
    rows = rollouts(prompts, trainer)
    row = next(place for place, one in enumerate(rows["trajectory_id"]) if one)
    place = rows["env_mask"][row].index(1)
    rows["completion_ids"][row][place] = (rows["completion_ids"][row][place] + 1) % 8
    return rows


def main(model: Path, tasks: Path, out: Path) -> None:
    rollouts = TrlRollouts(model, read_tasks(tasks, run=os.environ["AGENT_LAYER_RUN"]), patience_seconds=240)
    trainer = GRPOTrainer(
        model=str(model),
        reward_funcs=rollouts.reward,
        train_dataset=Dataset.from_list(rollouts.dataset_rows()),
        rollout_func=partial(spoil, rollouts) if "SPOILED" in os.environ else rollouts,
        args=GRPOConfig(
            output_dir=str(out.parent / "trl"),
            max_steps=int(os.environ.get("STEPS", "2")),
            per_device_train_batch_size=2 * GENERATIONS,
            num_generations=GENERATIONS,
            learning_rate=1e-3,
            use_cpu=True,
            bf16=False,
            report_to=[],
            logging_steps=1,
            save_strategy="no",
        ),
    )
    trainer.model.register_forward_hook(partial(look, trainer), with_kwargs=True)
    trainer.train()
    out.write_text(json.dumps(seen))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
