"""What an update computes of forked rollouts: hardly more tokens than their rows have, and the same gradient.

torch and veRL take ten seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import random
from io import BytesIO

import msgspec
import pytest

from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.training import TrainingSample
from trainer_adapter.config import OptimizerConfig, TrainConfig
from trainer_adapter.data.advantages import TrainingBatch

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(300),
]

PROMPT = [3, 12]
TURNS, TOKENS = 15, 10


def start(model, microbatch_tokens):
    from trainer_adapter.verl.trainer import EmbeddedTrainer

    optimizer = OptimizerConfig(microbatch_tokens=microbatch_tokens)
    return EmbeddedTrainer(TrainConfig(model=model, tasks=[], steps=1, optimizer=optimizer))


def forked_batch():
    """Two rollouts of 15 turns; at each turn three answers fork off, and the next turn continues none of them."""
    chance = random.Random(0)
    samples, rollout_of = [], []
    for rollout in (0, 1):
        trunk = [chance.randrange(12, 21) for _ in range(TURNS * TOKENS)]
        for turn in range(TURNS):
            for _ in range(3):
                context, answer = trunk[: turn * TOKENS], [chance.randrange(12, 21) for _ in range(TOKENS)]
                mask = [0] * len(context) + [1] * TOKENS
                samples.append(
                    TrainingSample(
                        sample_id=f"{rollout}.{len(samples)}",
                        trajectory_id=str(rollout),
                        run="r",
                        task_id="q",
                        prompt_ids=TokenIds(PROMPT),
                        response_ids=TokenIds(context + answer),
                        loss_mask=TokenIds(mask),
                        logprobs=Logprobs([-3.0 * one for one in mask]),
                        versions=TokenIds([one - 1 for one in mask]),
                        temperature=1.0,
                    )
                )
                rollout_of.append(rollout)
    return TrainingBatch(
        group_ids=["g", "g"],
        trajectory_ids=["0", "1"],
        rewards=[1.0, 0.0],
        reward_ids=[[], []],
        samples=samples,
        rollout_of=rollout_of,
    )


def watch_inputs(trainer):
    """Sizes of what goes through the model, padding included."""
    sizes = []
    module = trainer._worker.engine.module
    module.register_forward_pre_hook(lambda *call: sizes.append(call[2]["input_ids"].numel()), with_kwargs=True)
    return sizes


def test_forked_rollouts_are_computed_with_hardly_any_padding_and_the_same_gradient(model):
    batch = forked_batch()
    num_tokens = sum(len(one.prompt_ids) + len(one.response_ids) for one in batch.samples)
    trainer, at_once = start(model, 1024), start(model, 1_000_000)
    sizes = watch_inputs(trainer)

    norm = trainer.update(batch, 0, version=0).metrics["grad_norm"]

    assert max(sizes) <= 1024
    assert 2 * num_tokens <= sum(sizes) < 2 * 1.1 * num_tokens  # measured, then trained
    assert norm == pytest.approx(at_once.update(batch, 0, version=0).metrics["grad_norm"], rel=1e-4)


def test_routes_of_a_sample_are_a_field_of_its_row_on_ray():
    import numpy as np

    from trainer_adapter.cluster.rows import _fields, _Place

    sample = forked_batch().samples[0]
    length, content = len(sample.prompt_ids) + len(sample.response_ids), BytesIO()
    routes = np.arange(2 * 3 * length, dtype=np.int16).reshape(length, 2, 3)
    np.save(content, routes)

    row = _fields(msgspec.structs.replace(sample, routed_experts=content.getvalue()), _Place("s", 0, 0), 1.0)

    assert row["routed_experts"].tolist() == routes.tolist()
    assert len(row["routed_experts"]) == len(row["input_ids"])
    assert "routed_experts" not in _fields(sample, _Place("s", 0, 0), 1.0)
