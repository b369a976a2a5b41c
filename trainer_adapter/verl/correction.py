"""Rollout correction by veRL: weights and rejection for samples of other weights, or of another engine.

Sequences are rollouts: where veRL takes the product, mean or maximum over a sequence, it sees the trained tokens of all
rows of a rollout.
"""

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

from trainer_adapter.algorithms import ResolvedAlgorithm
from trainer_adapter.verl.rollout_rows import RolloutRows

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# veRL and tensordict carry no types.


def correct_rollouts(
    data: TensorDict, present: Tensor, algorithm: ResolvedAlgorithm
) -> tuple[TensorDict, dict[str, float]]:
    """Return the rows with importance weights and without rejected tokens, and veRL's metrics.

    Args:
        data: rows with ``rollout``, ``response_mask`` and ``rollout_log_probs``.
        present: [num_rows, num_response_tokens] log-probabilities that are compared with the engine's: those before
            the update, with bypass those before this minibatch.
        algorithm: what is applied. After bypass a clipped loss has no weights, because its ratio corrects already.
    """
    options = algorithm.correction
    rows = RolloutRows(data["rollout"], data["response_mask"])
    is_weighted = not options.bypass or algorithm.loss == "reinforce"
    weights, mask, metrics = compute_rollout_correction_and_rejection_mask(
        old_log_prob=rows.join(present),
        rollout_log_prob=rows.join(data["rollout_log_probs"]),
        response_mask=rows.mask(),
        rollout_is=options.weights if is_weighted else None,
        rollout_is_threshold=options.upper if options.lower is None else f"{options.lower}_{options.upper}",
        rollout_is_batch_normalize=options.normalize,
        rollout_rs=",".join(rule.by for rule in options.reject) or None,
        rollout_rs_threshold=",".join(_threshold(rule.lower, rule.upper) for rule in options.reject) or None,
    )
    corrected = {"response_mask": rows.split(mask)}
    if weights is not None:
        found = weights.batch["rollout_is_weights"]
        if algorithm.loss == "geo_mean":
            found = _geometric_mean(found, mask).expand_as(found)
        corrected["rollout_is_weights"] = rows.split(found)
    return data.clone(recurse=False).update(corrected), metrics


def _geometric_mean(weights: Tensor, mask: Tensor) -> Tensor:
    """Return [num_rollouts, 1], the geometric mean of the weights of a rollout's trained tokens (GMPO, eq. 4)."""
    logarithms = torch.log(weights.clamp(min=torch.finfo(weights.dtype).tiny)) * mask
    return torch.exp(logarithms.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1))


def _threshold(lower: float | None, upper: float) -> str:
    return str(upper) if lower is None else f"{lower}_{upper}"
