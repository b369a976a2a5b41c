"""The losses of the papers over whole rollouts, in plain torch: what the trainer is compared with.

A rollout is one list of tokens here, whatever its rows are, so that forks and micro-batches do not exist.
"""
# ruff: noqa: PLC0415  # torch takes seconds to import

from dataclasses import dataclass

LOSSES = ("vanilla", "gspo", "sapo", "cispo", "geo_mean", "reinforce")
MEANS = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")


@dataclass(frozen=True)
class PlainRollout:
    """Trained tokens of one rollout; tensors of one number for each token."""

    new: object
    old: object
    advantages: object
    weights: object


def token_losses(rollout, loss, low, high):
    """Return what each paper averages, [num_tokens], without its mean."""
    import torch

    new, old, advantage = rollout.new, rollout.old, rollout.advantages
    ratio = torch.exp(new - old)
    match loss:
        case "vanilla":
            clipped = torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
            gain = torch.where(advantage < 0, torch.maximum(clipped, 3.0 * advantage), clipped)
        case "gspo":
            sequence = torch.exp((new - old).mean())
            stopped = sequence.detach() * torch.exp(new - new.detach())  # GSPO-token: the same value and gradient
            gain = torch.minimum(stopped * advantage, stopped.clamp(1 - low, 1 + high) * advantage)
        case "sapo":
            tau = torch.where(advantage > 0, 1.0, 1.05)
            gain = 4 / tau * torch.sigmoid(tau * (ratio - 1)) * advantage
        case "cispo":
            gain = ratio.clamp(1 - low, 1 + high).detach() * advantage * new
        case "geo_mean":
            log, bounded = new - old, (new - old).clamp(-low, high)
            smaller = torch.where(advantage > 0, torch.minimum(log, bounded), torch.maximum(log, bounded))
            gain = advantage * torch.exp(smaller.mean())
        case "reinforce":
            gain = advantage * new
    return -gain * rollout.weights


def mean_over(rollouts, values, mean, constant=1.0):
    """Return the mean of values of tokens, a list of [num_tokens] by rollout."""
    num_tokens = sum(len(one.new) for one in rollouts)
    match mean:
        case "token-mean":
            return sum(one.sum() for one in values) / num_tokens
        case "seq-mean-token-sum":
            return sum(one.sum() for one in values) / len(rollouts)
        case "seq-mean-token-mean":
            return sum(one.mean() for one in values) / len(rollouts)
        case "seq-mean-token-sum-norm":
            return sum(one.sum() / constant for one in values) / len(rollouts)


def plain_loss(rollouts, algorithm):
    """Return the loss of an algorithm by its papers' formulas."""
    low, high = algorithm.clip_low, algorithm.clip_high
    values = [token_losses(one, algorithm.loss, low, high) for one in rollouts]
    return mean_over(rollouts, values, algorithm.loss_mean, algorithm.loss_scale_factor)
