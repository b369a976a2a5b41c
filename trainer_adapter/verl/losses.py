"""Loss of an update: losses of tokens, weighted so that rollouts count, not rows, whatever the micro-batches are.

Every mean over tokens or rollouts is a sum in which each row has one weight (``row_weights``). Weights are fixed before
micro-batches are made, and so is what a loss needs of a whole rollout (``rollout_mean``): the sum does not depend on
them. This takes the place of veRL's ``ppo_loss``, with the same metrics. A loss sees trained tokens alone, so rows may
be padded or packed (``trainer_adapter/losses``).
"""

from collections.abc import Callable
from functools import partial

import msgspec
import torch
from tensordict import TensorDict
from torch import Tensor
from verl.trainer.ppo.core_algos import kl_penalty
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from trainer_adapter.algorithms import ResolvedAlgorithm
from trainer_adapter.losses import (
    LossTokens,
    attach_gradient,
    compute_losses,
    find_loss,
    find_rollout_value,
    list_metrics,
)
from trainer_adapter.verl.rollout_rows import RolloutRows

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# veRL and tensordict carry no types.

RATIO_GAP = "ratio_gap"
"""Metric: largest |r - 1| of a token, r = its probability in this forward pass / the engine's at sampling."""


class LossPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an update minimises; other processes can unpickle it."""

    loss: str
    options: dict[str, object]
    entropy: float
    """Coefficient of the entropy bonus."""
    kl: float
    """Coefficient of the KL penalty."""
    kl_estimator: str

    @classmethod
    def of(cls, algorithm: ResolvedAlgorithm, step: int, run_steps: int) -> "LossPlan":
        """Return that of an algorithm at a step."""
        return cls(
            loss=algorithm.loss,
            options=algorithm.loss_options,
            entropy=algorithm.entropy.value_at(step, run_steps),
            kl=algorithm.kl,
            kl_estimator=algorithm.kl_estimator,
        )


def weigh_rows(algorithm: ResolvedAlgorithm, rows: RolloutRows) -> Tensor:
    """Return [num_rows], what each token of a row weighs in the loss of a minibatch."""
    return weigh_tokens(algorithm, rows.tokens_of_rollout)[rows.rollout]


def weigh_tokens(algorithm: ResolvedAlgorithm, tokens_of_rollout: Tensor) -> Tensor:
    """Return [num_rollouts], what each token weighs in the loss of a minibatch of R rollouts and N tokens.

    A rollout of n trained tokens, in any number of rows, has per token: 1/N in ``token-mean``, 1/R in
    ``seq-mean-token-sum``, 1/(R n) in ``seq-mean-token-mean``, 1/(R C) in ``seq-mean-token-sum-norm``.

    Args:
        algorithm: with the mean.
        tokens_of_rollout: [num_rollouts] trained tokens, as floats.
    """
    tokens, num_rollouts = tokens_of_rollout.clamp(min=1), len(tokens_of_rollout)
    match algorithm.loss_mean:
        case "token-mean":
            return torch.full_like(tokens, 1 / float(tokens_of_rollout.sum().clamp(min=1)))
        case "seq-mean-token-sum":
            return torch.full_like(tokens, 1 / num_rollouts)
        case "seq-mean-token-mean":
            return 1 / (num_rollouts * tokens)
        case "seq-mean-token-sum-norm":
            return torch.full_like(tokens, 1 / (num_rollouts * (algorithm.loss_scale_factor or 1)))


def rollout_means(algorithm: ResolvedAlgorithm, rows: RolloutRows, data: TensorDict) -> Tensor:
    """Return [num_rows], the mean of the loss's ``rollout_value`` over each row's whole rollout, under ``present``.

    Args:
        algorithm: whose loss has such a value.
        rows: of the minibatch.
        data: with ``present``, ``old_log_probs``, ``rollout_log_probs``, ``advantages`` and ``response_mask``.
    """
    value = find_rollout_value(find_loss(algorithm.loss, algorithm.loss_options))
    assert value is not None  # the caller asks for such losses only
    mask = data["response_mask"].bool()
    values = torch.zeros_like(data["present"])
    values[mask] = value(_tokens(data, data["present"], mask), **algorithm.loss_options)
    return rows.mean_by_rollout(values)[rows.rollout]


def minibatch_loss(
    plan: LossPlan, model_output: dict[str, Tensor], data: TensorDict, dp_group: object = None
) -> tuple[Tensor, dict[str, Metric | float]]:
    """Return the share of one micro-batch in the loss of its minibatch, and metrics. veRL calls it.

    Args:
        plan: the loss, and the coefficients of entropy and KL.
        model_output: ``log_probs`` and perhaps ``entropy``, as veRL's engines return them.
        data: rows with ``row_weights``, and ``rollout_mean`` where a rollout has several rows.
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
    num_ranks = data["dp_size"]  # veRL averages over processes
    policy_loss, found = _policy_loss(plan, log_prob, rows, data.get("rollout_mean", None), weights)
    policy_loss = policy_loss * num_ranks
    share = num_ranks / max(1, data["batch_num_tokens"])
    metrics: dict[str, Metric | float] = {
        name: Metric(AggregationType.SUM, float(values.sum()) * share)  # means over tokens
        for name, values in found.items()
    }
    ratio = torch.exp(log_prob.detach() - rows["rollout_log_probs"])
    metrics[RATIO_GAP] = Metric(AggregationType.MAX, torch.where(mask, (ratio - 1).abs(), 0.0).max())
    metrics["actor/pg_loss"] = Metric(AggregationType.SUM, policy_loss)
    if entropy is not None:
        bonus = _weighted_sum(no_padding_2_padding(entropy, data), weights) * num_ranks
        policy_loss = policy_loss - plan.entropy * bonus
        metrics["actor/entropy_loss"] = Metric(AggregationType.SUM, bonus)
    if plan.kl:
        reference = rows["ref_log_prob"]
        divergence = kl_penalty(log_prob, reference, plan.kl_estimator)  # pyright: ignore[reportArgumentType]  # any float type
        penalty = _weighted_sum(divergence, weights) * num_ranks
        policy_loss = policy_loss + plan.kl * penalty
        metrics["kl_loss"] = Metric(AggregationType.SUM, penalty)
        metrics["kl_coef"] = plan.kl
    return policy_loss, metrics


def make_loss(plan: LossPlan) -> Callable[..., tuple[Tensor, dict[str, Metric | float]]]:
    """Return ``minibatch_loss`` with a plan; other processes can unpickle it."""
    return partial(minibatch_loss, plan)


def _policy_loss(
    plan: LossPlan, log_prob: Tensor, rows: TensorDict, rollout_mean: Tensor | None, weights: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    mask, loss = rows["response_mask"].bool(), find_loss(plan.loss, plan.options)
    if not mask.any():  # rows without meaning; each process must have the same metrics in each micro-batch
        names = list_metrics(loss, plan.options)
        return _weighted_sum(log_prob, weights), dict.fromkeys(names, torch.zeros_like(log_prob))
    if "rollout_is_weights" in rows:
        weights = weights * rows["rollout_is_weights"]
    tokens = _tokens(rows, log_prob, mask)
    if (value := find_rollout_value(loss)) is not None:
        values, places = value(tokens, **plan.options), mask.nonzero()[:, 0]
        means = _row_means(values.detach(), places, mask) if rollout_mean is None else rollout_mean
        tokens = tokens._replace(rollout_mean=attach_gradient(means.to(values.dtype)[places], values))
    losses, metrics = compute_losses(loss, tokens, plan.options)
    return (losses * weights[mask]).sum(), metrics


def _row_means(values: Tensor, places: Tensor, mask: Tensor) -> Tensor:
    """Return [num_rows], the mean of the values of each row's tokens, where each row is a rollout."""
    sums = torch.zeros(len(mask), dtype=values.dtype, device=values.device).index_add(0, places, values)
    return sums / mask.sum(dim=1).clamp(min=1)


def _tokens(rows: TensorDict, log_prob: Tensor, mask: Tensor) -> LossTokens:
    reference = rows.get("ref_log_prob", None)
    return LossTokens(
        logprobs=log_prob[mask],
        old_logprobs=rows["old_log_probs"][mask],
        engine_logprobs=rows["rollout_log_probs"][mask],
        advantages=rows["advantages"][mask],
        reference_logprobs=None if reference is None else reference[mask],
    )


def _weighted_sum(values: Tensor, weights: Tensor) -> Tensor:
    """Return the sum over trained tokens; other places may hold any number."""
    is_trained = weights > 0
    return (values[is_trained] * weights[is_trained]).sum()
