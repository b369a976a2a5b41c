"""Advantages that an update trains with, at their tokens."""

import torch
from torch import Tensor

from trainer_adapter.algorithms import ResolvedAlgorithm
from trainer_adapter.data import CreditRule, TrainingBatch, advantage_rule, assign_credit, value_advantages


def token_advantages(batch: TrainingBatch, algorithm: ResolvedAlgorithm, num_tokens: int) -> Tensor:
    """Return [num_rows, num_tokens] advantages that follow from rewards.

    A value is a rollout's, a turn's or an agent's. One that is compared with no other has the advantage 0.
    """
    judged = assign_credit(batch, CreditRule.of(algorithm))
    values = value_advantages(judged, advantage_rule(algorithm))
    advantages = torch.zeros(len(batch.samples), num_tokens)
    for row, spans in enumerate(judged.spans):
        for start, size, value in spans:
            advantages[row, start : start + size] = values[value]
    return advantages
