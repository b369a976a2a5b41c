"""Two steps of TRL's AsyncGRPOTrainer over our rollouts, on a CPU: ``trl_async_run.py MODEL TASKS OUT``.

It writes each row that was trained: ids, and by place the log-probabilities of the engine and of the trainer.
With ``SPOILED`` in the environment, one id that the policy sampled is another one when TRL gets it.
Two parts of TRL need a GPU: its attention kernel, for which torch computes the same here, and the name of a card.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from datasets import Dataset
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer, packing

from agent_layer.dispatcher import read_tasks
from trainer_adapter.foreign import AsyncTrlRollouts

ROWS = 8
seen: list[dict[str, object]] = []
"""[num_rows]."""


def attend(query, key, value, ends_q, ends_k, _max_q, _max_k, *, softmax_scale, **_):
    """Compute what flash attention does for sequences side by side: a query sees the keys up to its own place."""
    groups = query.shape[1] // key.shape[1]
    rows = []
    for place in range(len(ends_q) - 1):
        own = query[ends_q[place] : ends_q[place + 1]].transpose(0, 1)
        keys, values = (one[ends_k[place] : ends_k[place + 1]].transpose(0, 1) for one in (key, value))
        keys, values = keys.repeat_interleave(groups, 0), values.repeat_interleave(groups, 0)
        visible = torch.ones(own.shape[1], keys.shape[1]).tril(keys.shape[1] - own.shape[1]).bool()
        scores = (own @ keys.transpose(1, 2) * softmax_scale).masked_fill(~visible, float("-inf"))
        rows.append((scores.softmax(-1) @ values).transpose(0, 1))
    return torch.cat(rows)


class SeeingTrainer(AsyncGRPOTrainer):
    """Keeps what each pass trains; with one row a pass, TRL's tree is a chain."""

    def compute_loss(self, model, inputs, *arguments, **options):
        def look(_module, _arguments, output):
            places = inputs["token_index"][0].tolist()
            computed = output.log_probs.flatten()
            ids = inputs["input_ids"][0].tolist()
            old = inputs["old_log_probs"][0].tolist()
            row = {place + 1: (sampled, computed[place].item()) for place, sampled in zip(places, old, strict=True)}
            seen.append({"step": self.state.global_step, "ids": ids, "trained": row})

        hook = model.register_forward_hook(look)
        try:
            return super().compute_loss(model, inputs, *arguments, **options)
        finally:
            hook.remove()


class SpoiledRollouts(AsyncTrlRollouts):
    """Changes one sampled id of the first row."""

    is_spoiled = False

    def _hand_over(self, row):
        if not self.is_spoiled:
            place = row.completion_mask.argmax()
            row.input_ids[place] = (row.input_ids[place] + 1) % 8
            self.is_spoiled = True
        super()._hand_over(row)


def main(model: Path, tasks: Path, out: Path) -> None:
    async_grpo_trainer.get_peak_flops_per_device = lambda *_: None
    packing._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=attend)
    kind = SpoiledRollouts if "SPOILED" in os.environ else AsyncTrlRollouts
    own = read_tasks(tasks, run=os.environ["AGENT_LAYER_RUN"])
    rollouts = kind(model, own, group_size=4, groups_per_round=2, patience_seconds=240)
    trainer = SeeingTrainer(
        model=str(model),
        train_dataset=Dataset.from_list(rollouts.dataset_rows()),
        rollout_worker=rollouts,
        weight_transfer=rollouts,
        args=AsyncGRPOConfig(
            output_dir=str(out.parent / "trl"),
            max_steps=2,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=ROWS,
            token_budget=0,
            learning_rate=1e-3,
            use_cpu=True,
            bf16=False,
            dtype="float32",
            report_to=[],
            save_strategy="no",
        ),
    )
    trainer.train()
    out.write_text(json.dumps(seen))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
