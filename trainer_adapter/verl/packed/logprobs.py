"""Log-probabilities and entropies of tokens, in chunks: logits of more than ``CHUNK_TOKENS`` tokens never exist.

The last layer of a model computes them in place of its logits, so that whatever shards its weight still gathers it.
The backward pass computes the logits of each chunk again. The gradient of the weight is summed over chunks in float32,
whatever the precision of the model.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from verl.models.transformers.dense_common import CausalLMOutputForPPO

from agent_layer.errors import BadInputError
from trainer_adapter.verl_keys import CHUNK_TOKENS

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# veRL and much of transformers carry no types.


class ScoredTokens(NamedTuple):
    """Which token follows each one of a packed micro-batch, and how it is scored."""

    next_ids: Tensor
    """[num_tokens]"""
    temperature: Tensor
    """[num_tokens] float32, that of the token's row."""
    has_entropy: bool


class LogitRule(NamedTuple):
    """What a model does with its logits after its last layer, by its configuration."""

    scale: float = 1.0
    cap: float | None = None
    """Largest size: logits become cap x tanh(logits / cap)."""

    def apply(self, logits: Tensor) -> Tensor:
        """Return the model's logits, in float32."""
        logits = logits.float()
        logits = logits if self.scale == 1.0 else logits * self.scale
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


def read_logit_rule(config: PretrainedConfig) -> LogitRule:
    """Return what the models of Gemma, Granite and Cohere do with their logits; nothing for others."""
    text = config.get_text_config()
    divisor, factor = getattr(text, "logits_scaling", None), getattr(text, "logit_scale", None)
    return LogitRule(
        scale=(1.0 if factor is None else float(factor)) / (1.0 if divisor is None else float(divisor)),
        cap=getattr(text, "final_logit_softcapping", None),
    )


def score_tokens(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, scored: ScoredTokens, rule: LogitRule
) -> tuple[Tensor, Tensor | None]:
    """Return the log-probability of each next token, and the entropy of each distribution.

    Args:
        hidden: [num_tokens, hidden_size] what the last layer gets.
        weight: [vocab_size, hidden_size]
        bias: [vocab_size]
        scored: the next tokens.
        rule: of the model.

    Returns: [num_tokens] float32; [num_tokens] float32, None unless asked for.
    """
    logprobs, entropy = _ChunkedScores.apply(hidden, weight, bias, scored, rule)
    return logprobs, entropy if scored.has_entropy else None


def replace_logits(model: PreTrainedModel) -> None:
    """Let a model score tokens in place of returning logits, wherever it is called with ``scored``.

    Raises: BadInputError: its logits do not come from one linear layer.
    """
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear:
        raise BadInputError(
            f"model {type(model).__name__}: expected logits from one linear layer, found {type(head).__name__}; the"
            " trainer computes log-probabilities from that layer's weight"
        )
    rule = read_logit_rule(model.config)
    compute_logits = head.forward

    def forward_head(hidden: Tensor, scored: ScoredTokens | None = None) -> Tensor | tuple[Tensor, Tensor | None]:
        if scored is None:
            return compute_logits(hidden)
        return score_tokens(hidden, head.weight, head.bias, scored, rule)

    compute_all = model.forward

    def forward(*args: object, scored: ScoredTokens | None = None, **inputs: object) -> object:
        if scored is None:
            return compute_all(*args, **inputs)
        decoder = cast("Callable[..., tuple[Tensor, ...]]", model.get_decoder())
        logprobs, entropy = head(decoder(*args, **inputs)[0].squeeze(0), scored)
        return CausalLMOutputForPPO(log_probs=logprobs, entropy=entropy)  # pyright: ignore[reportArgumentType]  # any type

    head.forward, model.forward = forward_head, forward  # pyright: ignore[reportAttributeAccessIssue]  # with more arguments


class _ChunkedScores(torch.autograd.Function):
    @staticmethod
    def forward(  # torch hands over positions
        ctx: torch.autograd.function.FunctionCtx,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        scored: ScoredTokens,
        rule: LogitRule,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(hidden, weight, bias, scored.next_ids, scored.temperature)  # pyright: ignore[reportArgumentType]  # None is allowed
        device = hidden.device.type
        autocast = torch.autocast(
            device, dtype=torch.get_autocast_dtype(device), enabled=torch.is_autocast_enabled(device)
        )
        ctx.scored, ctx.rule, ctx.autocast = scored, rule, autocast  # pyright: ignore[reportAttributeAccessIssue]
        logprobs, entropy = torch.empty(len(hidden), device=device), torch.zeros(len(hidden), device=device)
        for part in _chunks(len(hidden)):
            found = _score_chunk(hidden[part], weight, bias, _select(scored, part), rule)
            logprobs[part] = found[0]
            if scored.has_entropy:
                entropy[part] = found[1]
        return logprobs, entropy

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: torch.autograd.function.FunctionCtx, of_logprobs: Tensor, of_entropy: Tensor
    ) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, next_ids, temperature = ctx.saved_tensors  # pyright: ignore[reportAttributeAccessIssue]
        scored = ScoredTokens(next_ids, temperature, ctx.scored.has_entropy)  # pyright: ignore[reportAttributeAccessIssue]
        needs = [*ctx.needs_input_grad[:3]]  # pyright: ignore[reportAttributeAccessIssue]
        of_hidden = torch.empty_like(hidden) if needs[0] else None
        of_head = [
            torch.zeros_like(one, dtype=torch.float32) if one is not None and need else None
            for one, need in zip((weight, bias), needs[1:], strict=True)
        ]
        for part in _chunks(len(hidden)):
            with torch.enable_grad(), ctx.autocast:  # pyright: ignore[reportAttributeAccessIssue]
                inputs = [
                    None if one is None else one.detach().requires_grad_(need)
                    for one, need in zip((hidden[part], weight, bias), needs, strict=True)
                ]
                found = _score_chunk(*inputs, _select(scored, part), ctx.rule)  # pyright: ignore
            wanted = [one for one, need in zip(inputs, needs, strict=True) if one is not None and need]
            outer = [of_logprobs[part], of_entropy[part]][: len(found)]
            gradients = iter(torch.autograd.grad(found, wanted, outer))
            if of_hidden is not None:
                of_hidden[part] = next(gradients)
            for total in (one for one in of_head if one is not None):
                total.add_(next(gradients))
        of_weight, of_bias = (
            None if total is None else total.to(one.dtype) for total, one in zip(of_head, (weight, bias), strict=True)
        )
        return of_hidden, of_weight, of_bias, None, None


def _score_chunk(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, scored: ScoredTokens, rule: LogitRule
) -> tuple[Tensor, ...]:
    logits = rule.apply(nn.functional.linear(hidden, weight, bias)) / scored.temperature.unsqueeze(1)
    logprobs = logits.log_softmax(dim=1)
    found = logprobs.gather(1, scored.next_ids.unsqueeze(1)).squeeze(1)
    return (found, -(logprobs.exp() * logprobs).sum(dim=1)) if scored.has_entropy else (found,)


def _chunks(num_tokens: int) -> list[slice]:
    return [slice(start, start + CHUNK_TOKENS) for start in range(0, num_tokens, CHUNK_TOKENS)]


def _select(scored: ScoredTokens, part: slice) -> ScoredTokens:
    return ScoredTokens(scored.next_ids[part], scored.temperature[part], scored.has_entropy)
