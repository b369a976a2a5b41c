"""Loss of an update: veRL's policy losses, weighted so that rollouts count, not rows, whatever the micro-batches are.

Every mean over tokens or rollouts is a sum in which each row has one weight (``row_weights``). Weights are fixed before
micro-batches are made, so the sum does not depend on them. veRL's ``ppo_loss`` counts rows in its ``seq-mean-*`` modes,
in which a forked rollout would weigh more; this one takes its place, with the same metrics.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, cast

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss, get_policy_loss_fn, kl_penalty, register_policy_loss
from verl.utils.metric import AggregationType, Metric
from verl.utils.torch_functional import masked_mean
from verl.workers.config import ActorConfig
from verl.workers.utils.padding import no_padding_2_padding

from trainer_adapter.algorithms import ResolvedAlgorithm
from trainer_adapter.verl.rollout_rows import RolloutRows

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# veRL and tensordict carry no types.

GMPO_LOSS = "agent_layer_geo_mean"
VERL_LOSSES = {"reinforce": "gpg", "geo_mean": GMPO_LOSS}
"""veRL's names of losses, where they are not ours."""
RATIO_GAP = "ratio_gap"
"""Metric: largest |r - 1| of a token, r = its probability in this forward pass / the engine's at sampling."""


_PolicyLoss: TypeAlias = Callable[..., tuple[Tensor, dict[str, float]]]


def weigh_rows(algorithm: ResolvedAlgorithm, rows: RolloutRows) -> Tensor:
    """Return [num_rows], what each token of a row weighs in the loss of a minibatch of R rollouts and N tokens.

    A rollout of n trained tokens, in any number of rows, has per token: 1/N in ``token-mean``, 1/R in
    ``seq-mean-token-sum``, 1/(R n) in ``seq-mean-token-mean``, 1/(R C) in ``seq-mean-token-sum-norm``.
    """
    tokens = rows.tokens_of_rollout.clamp(min=1)
    num_rollouts = rows.num_rollouts
    match algorithm.loss_mean:
        case "token-mean":
            weights = torch.full_like(tokens, 1 / float(rows.tokens_of_rollout.sum().clamp(min=1)))
        case "seq-mean-token-sum":
            weights = torch.full_like(tokens, 1 / num_rollouts)
        case "seq-mean-token-mean":
            weights = 1 / (num_rollouts * tokens)
        case "seq-mean-token-sum-norm":
            weights = torch.full_like(tokens, 1 / (num_rollouts * (algorithm.loss_scale_factor or 1)))
    return weights[rows.rollout]


def sequence_log_ratios(
    algorithm: ResolvedAlgorithm, rows: RolloutRows, log_ratio: Tensor, advantages: Tensor
) -> Tensor:
    """Return [num_rows], the logarithm of the ratio of each row's whole rollout, as GSPO and GMPO define it.

    Args:
        algorithm: with loss ``gspo`` or ``geo_mean``.
        rows: of the minibatch.
        log_ratio: [num_rows, num_response_tokens] present - old log-probability.
        advantages: as ``log_ratio``.
    """
    if algorithm.loss == "geo_mean":
        log_ratio = _clip_log_ratio(log_ratio, advantages, algorithm.clip_low or 0.0, algorithm.clip_high or 0.0)
    return rows.mean_by_rollout(log_ratio)[rows.rollout]


def minibatch_loss(
    config: ActorConfig, model_output: dict[str, Tensor], data: TensorDict, dp_group: object = None
) -> tuple[Tensor, dict[str, Metric | float]]:
    """Return the share of one micro-batch in the loss of its minibatch, and metrics. veRL calls it.

    Args:
        config: with veRL's name of the loss, its bounds, and the coefficients of entropy and KL.
        model_output: ``log_probs`` and perhaps ``entropy``, as veRL's engines return them.
        data: rows with ``row_weights``, and ``sequence_log_ratio`` where a rollout has several rows.
        dp_group: veRL's signature.
    """
    del dp_group
    log_prob = no_padding_2_padding(model_output["log_probs"], data)
    entropy = model_output.get("entropy")
    rows = data.select(
        "response_mask",
        "old_log_probs",
        "advantages",
        "row_weights",
        "rollout_is_weights",
        "ref_log_prob",
        "rollout_log_probs",
        strict=False,
    ).to_padded_tensor()
    mask = rows["response_mask"].bool()
    weights = rows["row_weights"].unsqueeze(1) * mask
    config.global_batch_info.update(dp_size=data["dp_size"], global_batch_size=1)
    policy_loss, found = _policy_loss(config, log_prob, rows, data.get("sequence_log_ratio", None), weights)
    share = data["dp_size"] * float(mask.sum()) / max(1, data["batch_num_tokens"])  # veRL averages over processes
    metrics: dict[str, Metric | float] = {
        name: Metric(AggregationType.SUM, value * share)
        for name, value in found.items()  # means over tokens
    }
    ratio = torch.exp(log_prob.detach() - rows["rollout_log_probs"])
    metrics[RATIO_GAP] = Metric(AggregationType.MAX, torch.where(mask, (ratio - 1).abs(), 0.0).max())
    metrics["actor/pg_loss"] = Metric(AggregationType.SUM, policy_loss)
    if entropy is not None:
        bonus = _weighted_sum(config, no_padding_2_padding(entropy, data), weights)
        policy_loss = policy_loss - config.entropy_coeff * bonus
        metrics["actor/entropy_loss"] = Metric(AggregationType.SUM, bonus)
    if config.use_kl_loss:
        reference = rows["ref_log_prob"]
        divergence = kl_penalty(log_prob, reference, config.kl_loss_type)  # pyright: ignore[reportArgumentType]  # any float type
        penalty = _weighted_sum(config, divergence, weights)
        policy_loss = policy_loss + config.kl_loss_coef * penalty
        metrics["kl_loss"] = Metric(AggregationType.SUM, penalty)
        metrics["kl_coef"] = config.kl_loss_coef
    return policy_loss, metrics


def make_loss(config: ActorConfig) -> Callable[..., tuple[Tensor, dict[str, Metric | float]]]:
    """Return ``minibatch_loss`` with a configuration; other processes can unpickle it."""
    return partial(minibatch_loss, config=config)


def _policy_loss(
    config: ActorConfig, log_prob: Tensor, rows: TensorDict, sequence_log_ratio: Tensor | None, weights: Tensor
) -> tuple[Tensor, dict[str, float]]:
    name, old_log_prob, mask = config.policy_loss.loss_mode, rows["old_log_probs"], rows["response_mask"].bool()
    extra: dict[str, Tensor] = {}
    if "rollout_is_weights" in rows:
        weights = weights * rows["rollout_is_weights"]
    if name == "sapo":  # veRL's averages each row over its tokens, whatever the mode
        weights = weights * mask.sum(dim=1, keepdim=True)
    if sequence_log_ratio is not None and name == "gspo":  # only the row's mean of log_prob - old_log_prob counts
        shift = masked_mean(log_prob.detach() - old_log_prob, mask, axis=1) - sequence_log_ratio
        old_log_prob = old_log_prob + shift.unsqueeze(1)
    elif sequence_log_ratio is not None:
        extra["sequence_log_ratio"] = sequence_log_ratio
    function = cast("_PolicyLoss", get_policy_loss_fn(name))  # veRL declares positions, and calls by name
    return function(
        old_log_prob=old_log_prob,
        log_prob=log_prob,
        advantages=rows["advantages"],
        response_mask=mask,
        loss_agg_mode="token-sum",
        config=config,
        rollout_is_weights=weights,
        **extra,
    )


def _weighted_sum(config: ActorConfig, values: Tensor, weights: Tensor) -> Tensor:
    return agg_loss(values * weights, weights > 0, "token-sum", dp_size=config.global_batch_info["dp_size"])


@register_policy_loss(GMPO_LOSS)
def geometric_mean_loss(  # noqa: PLR0913, PLR0917  # veRL's signature
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "seq-mean-token-mean",
    config: ActorConfig | None = None,
    rollout_is_weights: Tensor | None = None,
    sequence_log_ratio: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """Return the loss of GMPO (Zhao et al. 2025, eq. 4) and its metrics; veRL's ``geo_mean`` with any aggregation.

    veRL's averages over the rows of each micro-batch, so its gradient grows with their number. Here each token of a row
    has the row's loss, and the aggregation of veRL's other losses applies.

    Args:
        old_log_prob: [num_rows, num_tokens].
        log_prob: as ``old_log_prob``.
        advantages: as ``old_log_prob``, one value for each row.
        response_mask: as ``old_log_prob``.
        loss_agg_mode: veRL's.
        config: bounds of the logarithm of a token's ratio.
        rollout_is_weights: as ``old_log_prob``; weights of a row act by their geometric mean.
        sequence_log_ratio: [num_rows] value of a rollout with several rows; None: each row is a rollout.
    """
    if config is None:
        raise ValueError("loss geo_mean: expected veRL's actor configuration, found none")
    mask = response_mask.bool()
    log_ratio = log_prob - old_log_prob
    clipped = _clip_log_ratio(log_ratio, advantages, config.clip_ratio_low, config.clip_ratio_high)
    mean = masked_mean(clipped, mask, axis=1)
    if sequence_log_ratio is not None:
        mean = mean - mean.detach() + sequence_log_ratio
    losses = -masked_mean(advantages, mask, axis=1) * torch.exp(mean)
    if rollout_is_weights is not None:
        log_weights = torch.log(rollout_is_weights.clamp(min=torch.finfo(rollout_is_weights.dtype).tiny))
        losses = losses * torch.exp(masked_mean(log_weights, mask, axis=1))
    loss = agg_loss(losses.unsqueeze(1).expand_as(log_prob), mask, loss_agg_mode, **config.global_batch_info)
    is_clipped = (log_ratio < -config.clip_ratio_low) | (log_ratio > config.clip_ratio_high)
    return loss, {
        "actor/pg_clipfrac": masked_mean((is_clipped & (advantages > 0)).float(), mask).item(),
        "actor/ppo_kl": masked_mean(-log_ratio, mask).item(),
        "actor/pg_clipfrac_lower": masked_mean((is_clipped & (advantages < 0)).float(), mask).item(),
    }


def _clip_log_ratio(log_ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """Return the less favourable of the logarithm of a ratio and its clipped value."""
    clipped = log_ratio.clamp(-low, high)
    return torch.where(advantages > 0, torch.minimum(log_ratio, clipped), torch.maximum(log_ratio, clipped))
