"""veRL's batch: the one place where samples become tensors.

Prompts are padded on the left, responses on the right, so that column ``num_prompt`` is the first response token of
every row. ``response_mask`` is the samples' loss mask: a token that is 0 there is context and is not trained.
"""

from collections.abc import Sequence

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from agent_layer.schema import TrainingSample
from trainer_adapter.algorithms import ResolvedAlgorithm
from trainer_adapter.data import TrainingBatch

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# veRL and tensordict carry no types.


def pack_batch(batch: TrainingBatch, algorithm: ResolvedAlgorithm) -> TensorDict:
    """Return tensors with veRL's names, one row per sample, advantages included."""
    samples = batch.samples
    prompts = _stack([torch.tensor(sample.prompt_ids) for sample in samples], pad=0, side="left")
    responses = _stack([torch.tensor(sample.response_ids) for sample in samples], pad=0, side="right")
    attention_mask = torch.cat([_presence(samples, "prompt"), _presence(samples, "response")], dim=1)
    response_mask = _stack([torch.tensor(sample.loss_mask) for sample in samples], pad=0, side="right")
    row_advantages = rollout_advantages(batch, algorithm)[torch.tensor(batch.rollout_of)]
    return TensorDict(
        {
            "prompts": prompts.long(),
            "responses": responses.long(),
            "input_ids": torch.cat([prompts, responses], dim=1).long(),
            "attention_mask": attention_mask,
            "position_ids": (attention_mask.cumsum(dim=1) - 1).clamp(min=0),
            "response_mask": response_mask,
            "rollout_log_probs": _stack([torch.tensor(sample.logprobs) for sample in samples], pad=0.0, side="right"),
            "versions": _stack([torch.tensor(sample.versions) for sample in samples], pad=-1, side="right"),
            "temperature": torch.tensor([sample.temperature or 1.0 for sample in samples]),
            "advantages": row_advantages.unsqueeze(1) * response_mask,
            "rollout": torch.tensor(batch.rollout_of),
        },
        batch_size=len(samples),
    )


_ESTIMATORS = {"grpo": "grpo", "rloo": "rloo", "reinforce++": "reinforce_plus_plus"}
"""veRL's names."""


def rollout_advantages(batch: TrainingBatch, algorithm: ResolvedAlgorithm) -> Tensor:
    """Return [num_rollouts] advantages by veRL's estimator, which sees each rollout once, as one token."""
    options: dict[str, object] = {}
    if algorithm.estimator == "grpo":
        options["norm_adv_by_std_in_grpo"] = algorithm.scale_by_std
    elif algorithm.estimator == "reinforce++":
        options["config"] = AlgoConfig(gamma=1.0)
    advantages, _ = get_adv_estimator_fn(_ESTIMATORS[algorithm.estimator])(
        token_level_rewards=torch.tensor(batch.rewards).unsqueeze(1),
        response_mask=torch.ones(len(batch.rewards), 1),
        index=np.array(batch.group_ids, dtype=object),
        **options,
    )
    return advantages[:, 0]


def measure_logprob_gap(data: TensorDict, version: int) -> float | None:
    """Return the largest difference of log-probabilities between trainer and engine, over tokens of this version.

    Returns: None without such tokens.
    """
    is_own = data["versions"] == version
    gaps = (data["old_log_probs"] - data["rollout_log_probs"]).abs()[is_own]
    return float(gaps.max()) if gaps.numel() else None


def _stack(rows: Sequence[Tensor], *, pad: float, side: str) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=pad, padding_side=side)


def _presence(samples: Sequence[TrainingSample], part: str) -> Tensor:
    is_prompt = part == "prompt"
    ones = [torch.ones(len(one.prompt_ids if is_prompt else one.response_ids), dtype=torch.long) for one in samples]
    return _stack(ones, pad=0, side="left" if is_prompt else "right")
