"""A program: updates of rows of given lengths, one after the other, and the memory that each had at its most.

long_rows.py MODEL LENGTH…            prints JSON: a record for each length, see ``TrainedRow``
"""

import random
import sys
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import msgspec
import torch
from transformers import Qwen2ForCausalLM

from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.training import StepRef, TrainingSample
from trainer_adapter.config import OptimizerConfig, Schedule, SourceConfig, TrainConfig
from trainer_adapter.data import TrainingBatch
from trainer_adapter.data.advantages import GroupSamples, RolloutSamples, select_batch
from trainer_adapter.verl import EmbeddedTrainer

T = TypeVar("T")

COMPARED = 4
"""Tokens at the end of a row whose log-probabilities transformers computes too."""


class TrainedRow(msgspec.Struct, frozen=True, kw_only=True):
    """What an update did with a row."""

    num_tokens: int
    peak_bytes: int
    """Most memory of tensors at a time, beyond what there was before the update."""
    num_trained: int
    """Tokens that were in the loss, of all rows."""
    is_changed: bool
    """Whether the optimizer step was made."""
    logprobs: list[float]
    """[COMPARED] the last ones, of the update."""
    expected: list[float]
    """[COMPARED] of transformers' own model, before the update."""


def make_sample(name: str, num_tokens: int, words: int) -> TrainingSample:
    """A row of a conversation: after a prompt, three of four tokens are sampled."""
    chance = random.Random(num_tokens)
    num_prompt = num_tokens // 8
    mask = [int(place % 4 != 3) for place in range(num_tokens - num_prompt - COMPARED)] + [1] * COMPARED
    return TrainingSample(
        sample_id=f"{name}.0",
        trajectory_id=name,
        run="r",
        task_id="q",
        prompt_ids=TokenIds(chance.choices(range(words), k=num_prompt)),
        response_ids=TokenIds(chance.choices(range(words), k=len(mask))),
        loss_mask=TokenIds(mask),
        logprobs=Logprobs([-11.9 * one for one in mask]),
        versions=TokenIds([0 if one else -1 for one in mask]),
        steps=[StepRef(call_id="c", choice=0, start=0, num_tokens=len(mask))],
    )


def make_batch(num_tokens: int, words: int) -> TrainingBatch:
    """A long row, and a short one that it is compared with."""
    rollouts = [
        RolloutSamples(trajectory_id=name, reward=reward, samples=[make_sample(name, length, words)])
        for name, reward, length in (("long", 1.0, num_tokens), ("short", 0.0, 64))
    ]
    return select_batch([GroupSamples(group_id="g", task_id="q", rollouts=rollouts)], keep_equal=False)


def measure_peak(act: Callable[[], T]) -> tuple[T, int]:
    """What a function returns, and the most bytes at a time that tensors on the CPU take in it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        found = act()
    events = profile.profiler.kineto_results.events()
    sizes = sorted((one.start_ns(), one.nbytes()) for one in events if one.name() == "[memory]")
    return found, max(accumulate(size for _, size in sizes))


@torch.no_grad()
def compute_last_logprobs(model: Path, trainer: EmbeddedTrainer, sample: TrainingSample) -> list[float]:
    """Log-probabilities of the last tokens under the trainer's weights, by transformers alone."""
    reader = Qwen2ForCausalLM.from_pretrained(model, attn_implementation="sdpa")
    reader.load_state_dict(dict(trainer.weights()))
    ids = torch.tensor([list(sample.prompt_ids + sample.response_ids)])
    logits = reader(ids, logits_to_keep=COMPARED + 1, use_cache=False).logits[0, :-1]
    return logits.float().log_softmax(1).gather(1, ids[0, -COMPARED:, None])[:, 0].tolist()


def train_row(trainer: EmbeddedTrainer, model: Path, batch: TrainingBatch) -> TrainedRow:
    """Make an update, and measure it."""
    expected = compute_last_logprobs(model, trainer, batch.samples[0])
    report, peak = measure_peak(lambda: trainer.update(batch, 0, version=0))
    found = report.tokens[0]
    return TrainedRow(
        num_tokens=len(batch.samples[0].prompt_ids) + len(batch.samples[0].response_ids),
        peak_bytes=peak,
        num_trained=sum(sum(one.mask) for one in report.tokens),
        is_changed=report.is_changed,
        logprobs=list(found.logprobs)[-COMPARED:],
        expected=expected,
    )


if __name__ == "__main__":
    directory, lengths = Path(sys.argv[1]), [int(one) for one in sys.argv[2:]]
    config = TrainConfig(
        model=directory,
        tasks=[SourceConfig(path=directory / "none.jsonl")],
        steps=1,
        optimizer=OptimizerConfig(learning_rate=Schedule(start=1e-3), microbatch_tokens=1024),
    )
    trainer, words = EmbeddedTrainer(config), Qwen2ForCausalLM.config_class.from_pretrained(directory).vocab_size
    batches = [make_batch(length, words) for length in lengths]
    rows = [train_row(trainer, directory, batch) for batch in batches]
    sys.stdout.write(msgspec.json.encode(rows).decode())
