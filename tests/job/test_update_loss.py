"""The loss of an update: the papers' formulas over rollouts, whatever rows and micro-batches are.

torch and veRL take seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import random
from dataclasses import dataclass, replace
from math import exp, log

import pytest

from trainer_adapter.algorithms import AlgorithmConfig, resolve_algorithm
from trainer_adapter.algorithms.papers import ALGORITHMS
from trainer_adapter.data.advantages import spread_advantages

from .plain_losses import LOSSES, MEANS, PlainRollout, mean_over, plain_loss

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other


@dataclass(frozen=True)
class Minibatch:
    """Rows of some rollouts. Lists of lists are [num_rows][num_response_tokens]."""

    rollouts: list[int]
    masks: list[list[int]]
    advantages: list[float]
    """By rollout."""
    old: list[list[float]]
    new: list[list[float]]
    weights: list[list[float]]
    reference: list[list[float]]

    def shuffled(self, order):
        """The same rows in another order."""
        by_row = ("rollouts", "masks", "old", "new", "weights", "reference")
        return replace(self, **{name: [getattr(self, name)[row] for row in order] for name in by_row})


MASKS = [[1, 1, 0, 1], [0, 1], [1], [1, 0, 0, 1, 1], [1, 1], [0, 0, 1], [1], [1, 1, 1], [0, 1]]


def numbers(seed, masks=MASKS):
    dice = random.Random(seed)
    return [[dice.uniform(-1.5, -0.2) for _ in mask] for mask in masks]


FORKED = Minibatch(
    rollouts=[0, 0, 0, 1, 2, 2, 3, 4, 4],
    masks=MASKS,
    advantages=[0.5, -0.5, 0.0, 1.5, -1.5],
    old=numbers(1),
    new=numbers(2),
    weights=[[exp(value) for value in row] for row in numbers(3)],
    reference=numbers(4),
)
"""Five rollouts in nine rows: three of them forked."""


def make_minibatch(loss):
    """``geo_mean`` takes the geometric mean of a row's weights, so here they are equal within a rollout."""
    if loss != "geo_mean":
        return FORKED
    even = [[0.5 + rollout / 4] * len(mask) for rollout, mask in zip(FORKED.rollouts, MASKS, strict=True)]
    return replace(FORKED, weights=even)


def resolve(loss, mean, **options):
    constant = {"loss_scale_factor": 12.0} if mean == "seq-mean-token-sum-norm" else {}
    return resolve_algorithm(AlgorithmConfig(loss=loss, loss_mean=mean, **constant, **options))


def pad(rows, dtype=None):
    """[num_rows, max_tokens], zero behind each row."""
    import torch

    stacked = torch.zeros(len(rows), max(map(len, rows)), dtype=dtype or torch.float32)
    for number, row in enumerate(rows):
        stacked[number, : len(row)] = torch.tensor(row)
    return stacked


def make_columns(algorithm, batch):
    """Columns with a prompt of one token, as the trainer makes them."""
    import torch

    from trainer_adapter.verl.losses import rollout_means, weigh_rows
    from trainer_adapter.verl.rollout_rows import RolloutRows

    responses = pad([[1] * len(mask) for mask in batch.masks], torch.long)
    tokens = torch.cat([torch.ones(len(responses), 1, dtype=torch.long), responses], dim=1)
    mask, rollout = pad(batch.masks, torch.long), torch.tensor(batch.rollouts)
    rows = RolloutRows(rollout, mask)
    columns = {
        "prompts": torch.ones(len(responses), 1, dtype=torch.long),
        "responses": responses,
        "input_ids": tokens.clone(),
        "attention_mask": tokens,
        "position_ids": tokens.cumsum(1) - 1,
        "response_mask": mask,
        "old_log_probs": pad(batch.old),
        "rollout_log_probs": pad(batch.old),
        "ref_log_prob": pad(batch.reference),
        "advantages": torch.tensor(batch.advantages)[rollout].unsqueeze(1) * mask,
        "rollout_is_weights": pad(batch.weights),
        "row_weights": weigh_rows(algorithm, rows),
    }
    if algorithm.has_rollout_value:
        columns["rollout_mean"] = rollout_means(algorithm, rows, columns | {"present": pad(batch.new)})
    return columns


def loss_by_verl(algorithm, batch, sizes):
    """Loss and its gradient, [num_rows, max_tokens], summed over micro-batches of these sizes; and metrics of each."""
    import torch
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import left_right_2_no_padding

    from trainer_adapter.verl.losses import LossPlan, minibatch_loss

    columns, leaf = make_columns(algorithm, batch), pad(batch.new).requires_grad_()
    plan = LossPlan.of(algorithm, 0, 1)
    total, start, metrics = 0.0, 0, []
    for size in sizes:
        part = slice(start, start + size)
        data = left_right_2_no_padding(TensorDict({name: one[part] for name, one in columns.items()}, batch_size=size))
        tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=sum(map(sum, batch.masks)))
        # the engine's form: one number for each token, at the place before it
        lengths = [len(mask) for mask in batch.masks[part]]
        pieces = [torch.cat([row[:length], row.new_zeros(1)]) for row, length in zip(leaf[part], lengths, strict=True)]
        output = {"log_probs": torch.cat(pieces), "entropy": -torch.cat(pieces)}
        loss, found = minibatch_loss(plan, output, data)
        total, start = total + loss, start + size
        metrics.append(found)
    total.backward()
    return total.item(), leaf.grad, metrics


def plain_rollouts(batch):
    """The minibatch without rows, and the leaf of its present log-probabilities."""
    import torch

    leaf, mask, rollout = pad(batch.new).requires_grad_(), pad(batch.masks).bool(), torch.tensor(batch.rollouts)
    found = []
    for number, advantage in enumerate(batch.advantages):
        own = mask & (rollout == number).unsqueeze(1)
        advantages = torch.full((int(own.sum()),), advantage)
        found.append(PlainRollout(leaf[own], pad(batch.old)[own], advantages, pad(batch.weights)[own]))
    return found, leaf


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_is_that_of_its_paper_and_a_forked_rollout_counts_once(loss, mean):
    algorithm, batch = resolve(loss, mean), make_minibatch(loss)
    rollouts, leaf = plain_rollouts(batch)
    expected = plain_loss(rollouts, algorithm)
    expected.backward()

    found, gradient, _ = loss_by_verl(algorithm, batch, [9])

    assert found == pytest.approx(expected.item(), rel=1e-6, abs=1e-7)
    assert gradient.flatten().tolist() == pytest.approx(leaf.grad.flatten().tolist(), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("loss", LOSSES)
def test_neither_micro_batches_nor_the_order_of_rows_change_a_gradient(loss, mean):
    algorithm, batch = resolve(loss, mean), make_minibatch(loss)
    whole, gradient, _ = loss_by_verl(algorithm, batch, [9])
    dice = random.Random(7)

    for sizes in ([1] * 9, [2, 3, 4], [8, 1]):
        order = dice.sample(range(9), 9)
        parts, found, _ = loss_by_verl(algorithm, batch.shuffled(order), sizes)
        assert parts == pytest.approx(whole, rel=1e-6, abs=1e-7)
        assert found.flatten().tolist() == pytest.approx(gradient[order].flatten().tolist(), rel=1e-6, abs=1e-7)


def test_metrics_of_a_minibatch_do_not_depend_on_micro_batches():
    algorithm = resolve("vanilla", "token-mean")
    _, _, (whole,) = loss_by_verl(algorithm, FORKED, [9])
    _, _, parts = loss_by_verl(algorithm, FORKED, [1, 8])

    log_ratios = [
        new - old
        for row, mask in enumerate(MASKS)
        for new, old, one in zip(FORKED.new[row], FORKED.old[row], mask, strict=True)
        if one
    ]
    assert whole["actor/ppo_kl"].aggregate() == pytest.approx(-sum(log_ratios) / len(log_ratios), rel=1e-5)
    for name in ("actor/ppo_kl", "actor/pg_clipfrac", "actor/pg_loss"):
        summed = sum(part[name].aggregate() for part in parts)
        assert summed == pytest.approx(whole[name].aggregate(), rel=1e-5, abs=1e-7)


OUT = log(1.5)
"""Logarithm of a ratio that leaves the bounds of most losses."""
DEVIATION = 0.5**0.5 + 1e-6
"""Sample deviation of the rewards 1 and 0, with veRL's epsilon."""
STD = 0.5 / DEVIATION
PAIR = Minibatch(
    rollouts=[0, 1],
    masks=[[1, 1], [1]],
    advantages=[],
    old=[[-1.0 - OUT, -2.0], [-0.5]],
    new=[[-1.0, -2.0], [-0.5]],
    weights=[[1.0, 1.0], [1.0]],
    reference=[[-1.0 - log(2), -2.0], [-0.5]],
)
"""Rewards 1 and 0; ratios 1.5 and 1, and 1."""
K3 = 1 / 2 - log(1 / 2) - 1
"""Of the first token; that of the others is 0."""


@pytest.mark.parametrize(
    ("name", "advantage", "expected"),
    [
        # 1.5 is cut at 1.2; the mean of the first rollout's two tokens, then of the rollouts; and KL
        ("grpo", STD, -(STD * (1.2 + 1) / 2 - STD) / 2 + 0.04 * K3 / 2 / 2),
        ("dr_grpo", 0.5, -(0.5 * (1.2 + 1) / 3000 - 0.5 / 3000) / 2),
        ("dapo", STD, -(STD * (1.28 + 1) - STD) / 3),
        ("rloo", 1.0, -(1.0 * (-1 - 2) - 1.0 * -0.5) / 2),
        ("reinforce++", STD, -(STD * (1.2 + 1) - STD) / 3),
        # one ratio for the first rollout, sqrt(1.5), cut at 1.0004
        ("gspo", STD, -(STD * 1.0004 - STD) / 2),
        # gates 4 sigmoid(0.5) and 2 for the first rollout, 2 / 1.05 for the second
        ("sapo", STD, -(STD * (4 / (1 + exp(-0.5)) + 2) / 2 - STD * 2 / 1.05) / 2),
        ("cispo", STD, -(STD * (1.2 * -1 + 1 * -2) - STD * -0.5) / 3),
        # the logarithm log(1.5) = 0.405 is cut at 0.4
        ("gmpo", STD, -(STD * exp(0.4 / 2) - STD) / 2),
    ],
)
def test_an_algorithm_by_name_has_the_loss_worked_out_by_hand(name, advantage, expected):
    algorithm = resolve_algorithm(AlgorithmConfig(name=name))

    found, _, _ = loss_by_verl(algorithm, replace(PAIR, advantages=[advantage, -advantage]), [2])

    assert found == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(
    ("name", "advantages"),
    [
        ("grpo", [STD, -STD, STD, -STD]),
        ("dr_grpo", [0.5, -0.5, 1.0, -1.0]),
        ("rloo", [1.0, -1.0, 2.0, -2.0]),
        # rewards 1, 0, 3, 1: mean 5/4, squared deviations (1 + 25 + 49 + 1) / 16, divided by 3
        ("reinforce++", [value / (19 / 12) ** 0.5 for value in (-0.25, -1.25, 1.75, -0.25)]),
    ],
)
def test_an_algorithm_by_name_has_the_advantages_worked_out_by_hand(name, advantages):
    from trainer_adapter.data.advantages import TrainingBatch

    algorithm = resolve_algorithm(AlgorithmConfig(name=name))
    batch = TrainingBatch(
        group_ids=["g", "g", "h", "h"],
        trajectory_ids=list("abcd"),
        rewards=[1.0, 0.0, 3.0, 1.0],
        reward_ids=[[]] * 4,
        samples=[one_token(trajectory_id) for trajectory_id in "abcd"],
        rollout_of=[0, 1, 2, 3],
    )

    assert [row[0] for row in spread_advantages(batch, algorithm)] == pytest.approx(advantages, abs=1e-5)


@pytest.mark.parametrize("name", ["grpo", "rloo", "reinforce++"])
def test_equal_rewards_have_no_advantage_however_many_there_are(name):
    algorithm = resolve_algorithm(AlgorithmConfig(name=name))
    for size in range(2, 33):  # the mean of seven times 0.7 is not 0.7 in float32, and the deviation hardly more
        batch = rewarded([0.7] * size)
        assert [row[0] for row in spread_advantages(batch, algorithm)] == pytest.approx([0.0] * size, abs=1e-7)


@pytest.mark.parametrize("name", ["grpo", "rloo", "reinforce++"])
def test_a_lone_value_teaches_nothing(name):
    algorithm = resolve_algorithm(AlgorithmConfig(name=name))

    assert spread_advantages(rewarded([3.0]), algorithm) == [[0.0]]


@pytest.mark.parametrize("name", [None, *ALGORITHMS])
def test_a_value_that_is_compared_with_none_has_no_advantage_beside_others(name):
    algorithm = resolve_algorithm(AlgorithmConfig(name=name))
    batch = rewarded([1.0, 0.0, 3.0], group_ids=["g", "g", "lone"])

    better, worse, lone = [row[0] for row in spread_advantages(batch, algorithm)]

    assert better > worse
    assert lone == 0 if algorithm.compares_groups else lone > better, "the baseline of reinforce++ is the batch"


def rewarded(rewards, group_ids=None):
    from trainer_adapter.data.advantages import TrainingBatch

    names = [str(number) for number in range(len(rewards))]
    return TrainingBatch(
        group_ids=group_ids or ["g"] * len(rewards),
        trajectory_ids=names,
        rewards=rewards,
        reward_ids=[[]] * len(rewards),
        samples=[one_token(name) for name in names],
        rollout_of=list(range(len(rewards))),
    )


def one_token(trajectory_id):
    from agent_layer.schema.record import Logprobs, TokenIds
    from agent_layer.schema.training import TrainingSample

    return TrainingSample(
        sample_id=f"{trajectory_id}.0",
        trajectory_id=trajectory_id,
        run="r",
        task_id="t",
        prompt_ids=TokenIds([1]),
        response_ids=TokenIds([2]),
        loss_mask=TokenIds([1]),
        logprobs=Logprobs([-0.5]),
        versions=TokenIds([0]),
    )


KL = log(2)
"""Present minus reference log-probability of the first token of PAIR; 0 of the others."""


@pytest.mark.parametrize(
    ("estimator", "value", "slope"),
    [
        ("k1", KL, 1.0),
        ("abs", KL, 1.0),
        ("k2", KL**2 / 2, KL),
        ("k3", 0.5 + KL - 1, 1 - 0.5),
        ("k1+", KL, KL),
        ("k3+", 0.5 + KL - 1, KL),
    ],
)
def test_the_kl_penalty_has_the_value_and_the_gradient_of_its_estimator(estimator, value, slope):
    algorithm = resolve("vanilla", "token-mean", kl=0.3, kl_estimator=estimator)

    loss, gradient, _ = loss_by_verl(algorithm, replace(PAIR, advantages=[0.0, 0.0]), [1, 1])

    assert loss == pytest.approx(0.3 * value / 3, rel=1e-5)
    assert gradient[0, 0].item() == pytest.approx(0.3 * slope / 3, rel=1e-5)


@pytest.mark.parametrize("mean", MEANS)
def test_entropy_and_kl_count_rollouts_too(mean):
    import torch

    from trainer_adapter.algorithms import Schedule

    algorithm = resolve("vanilla", mean, kl=0.3, kl_estimator="k2", entropy=Schedule(start=0.1))
    batch = replace(FORKED, advantages=[0.0] * 5)
    rollouts, leaf = plain_rollouts(batch)
    mask, rollout = pad(MASKS).bool(), torch.tensor(batch.rollouts)
    reference = [pad(batch.reference)[mask & (rollout == number).unsqueeze(1)] for number in range(5)]
    penalties = [
        0.3 * (one.new - base).square() / 2 + 0.1 * one.new for one, base in zip(rollouts, reference, strict=True)
    ]  # entropy is -new in this test
    expected = mean_over(rollouts, penalties, mean, 12.0)
    expected.backward()

    loss, gradient, _ = loss_by_verl(algorithm, batch, [3, 6])

    assert loss == pytest.approx(expected.item(), rel=1e-6)
    assert gradient.flatten().tolist() == pytest.approx(leaf.grad.flatten().tolist(), rel=1e-6, abs=1e-7)
