"""veRL's losses as losses of tokens: those that have no counterpart here.

veRL's functions return a sum over a matrix, in which each token's loss is multiplied by a weight. The derivative of
that sum by the weight is the token's loss, with its own gradient.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import cast

import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config import FSDPActorConfig
from verl.workers.config.actor import PolicyLossConfig

from agent_layer.errors import BadInputError
from trainer_adapter.algorithms import VERL_LOSSES
from trainer_adapter.losses.tokens import LossTokens, Metrics, TokenLoss

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# veRL carries no types.

_OF_ACTOR = ("clip_ratio", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c")
_OF_LOSS = tuple(
    one.name for one in fields(PolicyLossConfig) if not one.name.startswith("_") and one.name != "loss_mode"
)


def _wrap(name: str) -> TokenLoss:
    def loss(tokens: LossTokens, **options: object) -> tuple[Tensor, Metrics]:
        weights = torch.ones_like(tokens.logprobs).requires_grad_()
        function = cast("Callable[..., tuple[Tensor, Mapping[str, float]]]", get_policy_loss_fn(name))
        total, found = function(
            old_log_prob=tokens.old_logprobs.unsqueeze(0),
            log_prob=tokens.logprobs.unsqueeze(0),
            advantages=tokens.advantages.unsqueeze(0),
            response_mask=torch.ones_like(tokens.logprobs, dtype=torch.bool).unsqueeze(0),
            loss_agg_mode="token-sum",
            config=_configure(name, options),
            rollout_is_weights=weights.unsqueeze(0),
        )
        (losses,) = torch.autograd.grad(total, weights, create_graph=True)
        return losses, {key: torch.full_like(tokens.advantages, value) for key, value in found.items()}

    loss.__doc__ = f"veRL's loss ``{name}``, with its options by veRL's names."
    return loss


def _configure(name: str, options: Mapping[str, object]) -> FSDPActorConfig:
    if unknown := sorted(set(options) - {*_OF_ACTOR, *_OF_LOSS}):
        raise BadInputError(
            f"algorithm.loss_options.{unknown[0]}: veRL's loss {name!r} reads no such key; expected some of"
            f" {', '.join((*_OF_ACTOR, *_OF_LOSS))}"
        )
    own = {key: value for key, value in options.items() if key in _OF_LOSS}
    actor = {key: value for key, value in options.items() if key in _OF_ACTOR}
    return FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        use_dynamic_bsz=True,
        policy_loss=PolicyLossConfig(loss_mode=name, **own),  # pyright: ignore[reportArgumentType]
        **actor,  # pyright: ignore[reportArgumentType]
    )


clip_cov, dppo_kl, dppo_tv, dro, kl_cov = map(_wrap, VERL_LOSSES)
