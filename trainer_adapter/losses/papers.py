"""Losses of published algorithms, one function a family; ``trainer_adapter/algorithms/papers.py`` has their formulas.

Logarithms of ratios are cut at 20 on both sides, those of sequences at 10, so that no exponential overflows.
"""

import torch
from torch import Tensor

from trainer_adapter.losses.tokens import LossTokens

_MAX_LOG_RATIO, _MAX_LOG_SEQUENCE_RATIO = 20.0, 10.0


def clipped_ratio(tokens: LossTokens, low: float, high: float, dual: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Return PPO's clipped loss (Schulman et al. 2017), bounded where the advantage is negative (Ye et al. 2020).

    -min(w A, clip(w, 1 - low, 1 + high) A), and at most -dual A where A < 0.
    """
    ratio, advantages = torch.exp(_log_ratio(tokens)), tokens.advantages
    free, bounded = -advantages * ratio, -advantages * ratio.clamp(1 - low, 1 + high)
    clipped = torch.maximum(free, bounded)
    losses = torch.where(advantages < 0, torch.minimum(clipped, -advantages * dual), clipped)
    is_lower = (clipped > -advantages * dual) & (advantages < 0)
    return losses, _metrics(tokens, is_clipped=bounded > free, is_clipped_lower=is_lower)


def sequence_ratio(tokens: LossTokens, low: float, high: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of GSPO (Zheng et al. 2025, eq. 5 to 7 and 13): -min(s A, clip(s, 1 - low, 1 + high) A)."""
    ratio = torch.exp(_take_mean(tokens).clamp(max=_MAX_LOG_SEQUENCE_RATIO))
    free, bounded = -tokens.advantages * ratio, -tokens.advantages * ratio.clamp(1 - low, 1 + high)
    return torch.maximum(free, bounded), _metrics(tokens, is_clipped=bounded > free)


def soft_gate(tokens: LossTokens, tau_positive: float, tau_negative: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of SAPO (Gao et al. 2025): -4/tau sigmoid(tau (w - 1)) A."""
    ratio = torch.exp(_log_ratio(tokens))
    tau = torch.where(tokens.advantages > 0, tau_positive, tau_negative)
    return -4 / tau * torch.sigmoid(tau * (ratio - 1)) * tokens.advantages, _metrics(tokens)


def clipped_weight(tokens: LossTokens, low: float, high: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of CISPO (MiniMax 2025, eq. 4 and 5): -stop(clip(w, 1 - low, 1 + high)) A log pi."""
    ratio = torch.exp(_log_ratio(tokens)).detach()
    weight = ratio.clamp(1 - low, 1 + high)
    return -weight * tokens.advantages * tokens.logprobs, _metrics(tokens, is_clipped=ratio != weight)


def geometric_mean(tokens: LossTokens, low: float, high: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of GMPO (Zhao et al. 2025, eq. 4): -A exp(mean of clipped log ratios)."""
    log_ratio, advantages = tokens.logprobs - tokens.old_logprobs, tokens.advantages
    is_outside = (log_ratio < -low) | (log_ratio > high)
    metrics = _metrics(tokens, is_clipped=is_outside & (advantages > 0), is_clipped_lower=is_outside & (advantages < 0))
    return -advantages * torch.exp(_take_mean(tokens)), metrics


def plain_logprob(tokens: LossTokens) -> Tensor:
    """Return the loss of REINFORCE (Williams 1992): -A log pi."""
    return -tokens.advantages * tokens.logprobs


def _log_ratio(tokens: LossTokens) -> Tensor:
    return (tokens.logprobs - tokens.old_logprobs).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)


def _log_sequence_ratio(tokens: LossTokens, low: float, high: float) -> Tensor:
    del low, high
    return tokens.logprobs - tokens.old_logprobs


def _clipped_log_ratio(tokens: LossTokens, low: float, high: float) -> Tensor:
    """Return the less favourable of the logarithm of a ratio and its clipped value."""
    log_ratio = tokens.logprobs - tokens.old_logprobs
    clipped = log_ratio.clamp(-low, high)
    lesser, greater = torch.minimum(log_ratio, clipped), torch.maximum(log_ratio, clipped)
    return torch.where(tokens.advantages > 0, lesser, greater)


sequence_ratio.rollout_value = _log_sequence_ratio  # pyright: ignore[reportFunctionMemberAccess]
geometric_mean.rollout_value = _clipped_log_ratio  # pyright: ignore[reportFunctionMemberAccess]


def _take_mean(tokens: LossTokens) -> Tensor:
    if tokens.rollout_mean is None:
        raise ValueError("loss of whole rollouts: expected rollout_mean, found none; the trainer computes it")
    return tokens.rollout_mean


def _metrics(
    tokens: LossTokens, *, is_clipped: Tensor | None = None, is_clipped_lower: Tensor | None = None
) -> dict[str, Tensor]:
    """Return metrics by veRL's names; None: no token is."""
    none = torch.zeros_like(tokens.advantages)
    return {
        "actor/ppo_kl": (tokens.old_logprobs - tokens.logprobs).detach(),
        "actor/pg_clipfrac": none if is_clipped is None else is_clipped.to(none.dtype),
        "actor/pg_clipfrac_lower": none if is_clipped_lower is None else is_clipped_lower.to(none.dtype),
    }
