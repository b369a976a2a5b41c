"""Rollout correction: weights and rejection by hand; a sequence is a rollout, also where it has two rows.

torch and veRL take seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

from math import log, prod

import pytest

from trainer_adapter.algorithms import AlgorithmConfig, resolve_algorithm
from trainer_adapter.algorithms.options import CorrectionConfig, RejectionRule

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other

RATIOS = [[3.0, 0.5, 0.0], [0.8, 0.0, 1.5], [0.1, 1.0, 1.2]]
"""Trainer's probability / engine's, by row and token; 0 where the token is not trained."""
ROLLOUTS = [0, 0, 1]
MASK = [[int(ratio > 0) for ratio in row] for row in RATIOS]
FIRST, SECOND = 3.0 * 0.5 * 0.8 * 1.5, 0.1 * 1.0 * 1.2
"""Ratios of the rollouts."""


def correct(options, **algorithm):
    """Weights (None: none) and mask of the rows, and veRL's metrics."""
    import torch
    from tensordict import TensorDict

    from trainer_adapter.verl.correction import correct_rollouts

    present = torch.tensor([[log(ratio) if ratio else 7.0 for ratio in row] for row in RATIOS])
    data = TensorDict(
        {
            "rollout": torch.tensor(ROLLOUTS),
            "response_mask": torch.tensor(MASK),
            "rollout_log_probs": torch.zeros(3, 3),
        },
        batch_size=3,
    )
    resolved = resolve_algorithm(AlgorithmConfig(correction=options, **algorithm))
    corrected, metrics = correct_rollouts(data, present, resolved)
    weights = corrected.get("rollout_is_weights", None)
    return None if weights is None else weights.tolist(), corrected["response_mask"].tolist(), metrics


def near(rows):
    return [pytest.approx(row, rel=1e-5) for row in rows]


def spread(first, second):
    """One number for each rollout at its trained tokens."""
    return [[(first, first, second)[row] * one for one in mask] for row, mask in enumerate(MASK)]


def test_weights_of_tokens_are_cut_above():
    weights, mask, _ = correct(CorrectionConfig(weights="token", upper=2.0))

    assert weights == near([[2.0, 0.5, 0.0], [0.8, 0.0, 1.5], [0.1, 1.0, 1.2]])
    assert mask == MASK


def test_the_weight_of_a_sequence_is_the_product_over_all_rows_of_its_rollout():
    free, _, _ = correct(CorrectionConfig(weights="sequence", upper=10.0))
    cut, _, _ = correct(CorrectionConfig(weights="sequence", upper=1.5))

    assert free == near(spread(FIRST, SECOND))
    assert cut == near(spread(1.5, SECOND))


def test_icepop_zeroes_a_weight_outside_its_bounds_and_keeps_the_token():
    weights, mask, _ = correct(CorrectionConfig(weights="token", lower=0.5, upper=1.3))

    assert weights == near([[0.0, 0.5, 0.0], [0.8, 0.0, 0.0], [0.0, 1.0, 1.2]])
    assert mask == MASK


def test_normalized_weights_have_the_mean_one():
    weights, _, _ = correct(CorrectionConfig(weights="token", upper=2.0, normalize=True))

    mean = (2.0 + 0.5 + 0.8 + 1.5 + 0.1 + 1.0 + 1.2) / 7
    assert weights[0] == pytest.approx([2.0 / mean, 0.5 / mean, 0.0], rel=1e-5)


def test_a_rule_for_tokens_rejects_tokens():
    rule = RejectionRule(by="token_k1", lower=0.5, upper=2.0)  # bounds of engine's / trainer's

    _, mask, metrics = correct(CorrectionConfig(weights=None, reject=(rule,)))

    assert mask == [[0, 1, 0], [1, 0, 1], [0, 1, 1]]
    assert metrics["rollout_corr/rollout_rs_masked_fraction"] == pytest.approx(2 / 7)


@pytest.mark.parametrize(
    ("by", "upper", "kept"),
    [
        ("seq_sum_k1", 2.0, (1, 0)),  # 1 / 1.8 and 1 / 0.12
        ("seq_mean_k1", 1.5, (1, 0)),  # the fourth root of 1 / 1.8, the third of 1 / 0.12
        ("seq_max_k2", log(3) ** 2 / 2 + 0.01, (1, 0)),  # log(3)² / 2 and log(10)² / 2
        ("seq_max_k2", log(3) ** 2 / 2 - 0.01, (0, 0)),
        ("seq_mean_k3", 0.4, (1, 0)),  # 0.303, and 0.473 because of log(10) - 0.9
        ("seq_sum_k2", 10.0, (1, 1)),
    ],
)
def test_a_rule_for_sequences_rejects_whole_rollouts_with_all_their_rows(by, upper, kept):
    _, mask, _ = correct(CorrectionConfig(weights=None, reject=(RejectionRule(by=by, upper=upper),)))

    assert mask == spread(*kept)


def test_a_token_must_pass_every_rule():
    rules = (RejectionRule(by="token_k2", upper=log(3) ** 2 / 2 - 0.01), RejectionRule(by="seq_sum_k1", upper=2.0))

    _, mask, _ = correct(CorrectionConfig(weights=None, reject=rules))

    assert mask == [[0, 1, 0], [1, 0, 1], [0, 0, 0]]


def test_after_bypass_a_clipped_loss_has_no_weights_and_reinforce_has():
    bypass = CorrectionConfig(weights="token", upper=2.0, bypass=True)

    clipped, _, _ = correct(bypass)
    plain, _, _ = correct(bypass, name="rloo")

    assert clipped is None
    assert plain[0] == pytest.approx([2.0, 0.5, 0.0])


def test_metrics_see_trained_tokens_only():
    _, _, metrics = correct(CorrectionConfig())

    known = [ratio for row in RATIOS for ratio in row if ratio]
    assert metrics["rollout_corr/kl"] == pytest.approx(-log(prod(known)) / len(known), rel=1e-5)
