"""The loss of an update: rollouts count, not rows, and micro-batches change nothing.

torch and veRL take seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import random
from math import exp

import pytest

from trainer_adapter.algorithms import AlgorithmConfig, resolve_algorithm

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(300),
]

LOSSES = ("vanilla", "gspo", "sapo", "cispo", "geo_mean", "reinforce")
MEANS = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
ROLLOUTS = [0, 0, 0, 1, 2, 2, 3, 4, 4]
"""Five rollouts in nine rows: three of them forked."""
MASKS = [[1, 1, 0, 1], [0, 1], [1], [1, 0, 0, 1, 1], [1, 1], [0, 0, 1], [1], [1, 1, 1], [0, 1]]
ADVANTAGES = [0.5, -0.5, 0.0, 1.5, -1.5]
CONSTANT = 12.0


def resolve(loss, mean, **options):
    constant = {"loss_scale_factor": CONSTANT} if mean == "seq-mean-token-sum-norm" else {}
    return resolve_algorithm(AlgorithmConfig(loss=loss, loss_mean=mean, **constant, **options))


def make_numbers(seed):
    """One number for each token of each row."""
    dice = random.Random(seed)
    return [[dice.uniform(-1.5, -0.2) for _ in mask] for mask in MASKS]


OLD, NEW = make_numbers(1), make_numbers(2)
WEIGHTS = [[exp(value) for value in row] for row in make_numbers(3)]


def pad(rows, dtype=None):
    """[num_rows, 5], zero behind each row."""
    import torch

    stacked = torch.zeros(len(rows), 5, dtype=dtype or torch.float32)
    for number, row in enumerate(rows):
        stacked[number, : len(row)] = torch.tensor(row)
    return stacked


def make_rows(algorithm, order):
    """Columns of a minibatch with a prompt of one token, and the present log-probabilities."""
    import torch

    from trainer_adapter.verl.losses import sequence_log_ratios, weigh_rows
    from trainer_adapter.verl.rollout_rows import RolloutRows

    responses = pad([[1] * len(MASKS[row]) for row in order], torch.long)
    tokens = torch.cat([torch.ones(len(order), 1, dtype=torch.long), responses], dim=1)
    mask = pad([MASKS[row] for row in order], torch.long)
    rollout = torch.tensor([ROLLOUTS[row] for row in order])
    rows = RolloutRows(rollout, mask)
    advantages = torch.tensor(ADVANTAGES)[rollout].unsqueeze(1) * mask
    old, new = pad([OLD[row] for row in order]), pad([NEW[row] for row in order])
    columns = {
        "prompts": torch.ones(len(order), 1, dtype=torch.long),
        "responses": responses,
        "input_ids": tokens.clone(),
        "attention_mask": tokens,
        "position_ids": tokens.cumsum(1) - 1,
        "response_mask": mask,
        "old_log_probs": old,
        "advantages": advantages,
        "rollout_is_weights": pad([WEIGHTS[row] for row in order]),
        "row_weights": weigh_rows(algorithm, rows),
    }
    if algorithm.loss in {"gspo", "geo_mean"}:
        columns["sequence_log_ratio"] = sequence_log_ratios(algorithm, rows, new - old, advantages)
    return columns, new


def loss_by_verl(algorithm, order, sizes):
    """Loss and gradient, the latter by row and token, summed over micro-batches of these sizes."""
    import torch
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import left_right_2_no_padding

    from trainer_adapter.config import TrainConfig
    from trainer_adapter.verl.losses import minibatch_loss
    from trainer_adapter.verl.trainer import make_actor_config

    columns, new = make_rows(algorithm, order)
    leaf = new.clone().requires_grad_()
    actor = make_actor_config(TrainConfig(model="m", tasks="t", steps=1), algorithm, 0)
    total, start = 0.0, 0
    for size in sizes:
        part = slice(start, start + size)
        data = left_right_2_no_padding(TensorDict({name: one[part] for name, one in columns.items()}, batch_size=size))
        tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=sum(map(sum, MASKS)))
        # the engine's form: one number for each token, at the place before it
        lengths = [len(MASKS[row]) for row in order[part]]
        pieces = [torch.cat([row[:length], row.new_zeros(1)]) for row, length in zip(leaf[part], lengths, strict=True)]
        loss, _ = minibatch_loss(actor, {"log_probs": torch.cat(pieces)}, data)
        total, start = total + loss, start + size
    total.backward()
    by_row = dict(zip(order, leaf.grad.tolist(), strict=True))
    return total.item(), [by_row[row] for row in range(len(order))]


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("loss", LOSSES)
def test_neither_micro_batches_nor_the_order_of_rows_change_a_gradient(loss, mean):
    algorithm = resolve(loss, mean)
    whole, gradient = loss_by_verl(algorithm, list(range(9)), [9])
    dice = random.Random(7)

    for sizes in ([1] * 9, [2, 3, 4], [8, 1]):
        order = dice.sample(range(9), 9)
        parts, found = loss_by_verl(algorithm, order, sizes)
        assert parts == pytest.approx(whole, rel=1e-6, abs=1e-7)
        for row in range(9):
            assert found[row] == pytest.approx(gradient[row], rel=1e-6, abs=1e-7)
