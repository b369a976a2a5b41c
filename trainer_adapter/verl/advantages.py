"""Advantages that an update trains with, by veRL's estimators (GRPO, RLOO, REINFORCE++)."""

from collections import Counter

import numpy as np
import torch
from torch import Tensor
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from trainer_adapter.algorithms import ResolvedAlgorithm
from trainer_adapter.data import CreditRule, TrainingBatch, assign_credit

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# veRL carries no types.

_ESTIMATORS = {"grpo": "grpo", "rloo": "rloo", "reinforce++": "reinforce_plus_plus"}
"""veRL's names."""


def token_advantages(batch: TrainingBatch, algorithm: ResolvedAlgorithm, num_tokens: int) -> Tensor:
    """Return [num_rows, num_tokens] advantages of rewards by veRL's estimator, which sees each value once, as a token.

    A value is a rollout's, a turn's or an agent's. One that is compared with no other has the advantage 0, which veRL's
    estimators set to the value itself.

    Computed in float64: in float32 equal rewards differ from their mean by a rounding, which the division by their
    deviation makes an advantage of 0.056 (seven times 0.7).
    """
    judged = assign_credit(batch, CreditRule.of(algorithm))
    advantages = torch.zeros(len(batch.samples), num_tokens)
    if len(judged.values) == 1:  # with one value, reinforce++ divides by 0
        return advantages
    if algorithm.distill is not None and algorithm.distill.replace_rewards:
        return advantages
    options: dict[str, object] = {}
    if algorithm.estimator == "grpo":
        options["norm_adv_by_std_in_grpo"] = algorithm.scale_by_std
    elif algorithm.estimator == "reinforce++":
        options["config"] = AlgoConfig(gamma=1.0)
    found, _ = get_adv_estimator_fn(_ESTIMATORS[algorithm.estimator])(
        token_level_rewards=torch.tensor(judged.values, dtype=torch.float64).unsqueeze(1),
        response_mask=torch.ones(len(judged.values), 1),
        index=np.array(judged.baselines, dtype=object),
        **options,
    )
    sizes = Counter(judged.baselines)
    is_compared = torch.tensor([sizes[name] > 1 or not algorithm.compares_groups for name in judged.baselines])
    values = torch.where(is_compared, found[:, 0], 0.0)
    for row, spans in enumerate(judged.spans):
        for start, size, value in spans:
            advantages[row, start : start + size] = values[value]
    return advantages
