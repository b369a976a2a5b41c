"""Contract of a loss: trained tokens in, a loss for each of them out."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from torch import Tensor

from trainer_adapter.algorithms import LOSSES, find_part


class LossTokens(NamedTuple):
    """Trained tokens of a micro-batch: [num_tokens] each, float, in no promised order.

    Which tokens are together, and how rows are padded or packed, changes from run to run. So the loss of a token may
    follow from its own numbers, and from ``rollout_mean``, which is fixed before micro-batches are made.
    """

    logprobs: Tensor
    """Under the weights that learn; with a gradient."""
    old_logprobs: Tensor
    """Under the weights before the update; with ``correction.bypass`` those of the engine."""
    engine_logprobs: Tensor
    """Under the engine that sampled the token."""
    advantages: Tensor
    reference_logprobs: Tensor | None = None
    """Under the first weights; None without ``algorithm.kl``."""
    rollout_mean: Tensor | None = None
    """Mean of the loss's ``rollout_value`` over all trained tokens of the token's rollout, in whichever rows they are.
    Its gradient is that of the token's own value (as in GSPO-token, Zheng et al. 2025, eq. 13). None: the loss has no
    such attribute."""


Metrics: TypeAlias = Mapping[str, Tensor]
"""[num_tokens] each; a step reports their means over its trained tokens."""
TokenLoss: TypeAlias = Callable[..., Tensor | tuple[Tensor, Metrics]]
"""``loss(tokens, **options)`` returns [num_tokens], or that and metrics.

The trainer multiplies it by importance weights, averages it as ``algorithm.loss_mean`` says, and adds entropy bonus and
KL penalty. A loss that needs one number of a whole rollout has an attribute ``rollout_value``, a function of the same
arguments that returns [num_tokens]."""


def find_rollout_value(loss: TokenLoss) -> Callable[..., Tensor] | None:
    """Return the function whose mean over a rollout the loss needs; None: it needs none."""
    return getattr(loss, "rollout_value", None)


def find_loss(name: str, options: Mapping[str, object]) -> TokenLoss:
    """Return the loss of this name; raises what ``find_part`` does."""
    return find_part(LOSSES, name, options)  # pyright: ignore[reportReturnType]  # what it returns is checked


def compute_losses(
    loss: TokenLoss, tokens: LossTokens, options: Mapping[str, object]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of each token and metrics.

    Raises: ValueError: what the loss returned is not [num_tokens].
    """
    found, none = loss(tokens, **options), dict[str, Tensor]()
    losses, metrics = found if isinstance(found, tuple) else (found, none)
    for what, value in {"loss": losses, **metrics}.items():
        if not isinstance(value, Tensor) or value.shape != tokens.logprobs.shape:  # pyright: ignore[reportUnnecessaryIsInstance]  # users write losses
            shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"{what}: expected one number for each of {len(tokens.logprobs)} tokens, found {shape}")
    return losses, dict(metrics)
