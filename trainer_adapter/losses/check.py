"""What must hold for a loss: a number for each token, whatever other tokens are computed beside it.

Micro-batches follow from memory, ranks and lengths. If a token's loss depended on them, so would the gradient, and
neither a resumed run nor one on more processes would be the same training.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate

import torch
from torch import Tensor

from agent_layer.errors import BadInputError
from trainer_adapter.losses.tokens import LossTokens, TokenLoss, compute_losses, find_loss, find_rollout_value

_NUM_TOKENS, _NUM_ROLLOUTS = 64, 12
_SPLITS = ((1,) * _NUM_TOKENS, (1, 2, 5, 24, 32), (32, 32), (63, 1))
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9
"""Largest differences of numbers in float64, so only rounding is within."""


def check_named_loss(name: str, options: Mapping[str, object], *, has_reference: bool) -> None:
    """Raise BadInputError if there is no loss of this name, or it breaks its contract; see ``check_loss``."""
    check_loss(name, find_loss(name, options), options, has_reference=has_reference)


def check_loss(name: str, loss: TokenLoss, options: Mapping[str, object], *, has_reference: bool = True) -> None:
    """Raise BadInputError if a loss breaks its contract.

    It must return a finite number with a gradient for each token, the same for the same tokens, in whichever
    micro-batches and order they come, and metrics of the same names.

    Args:
        name: names it in the error.
        loss: the loss.
        options: its keyword arguments.
        has_reference: whether it gets ``reference_logprobs``, which a run has with ``algorithm.kl`` only.
    """
    tokens, rollout = make_tokens()
    if not has_reference:
        tokens = tokens._replace(reference_logprobs=None)
    value = find_rollout_value(loss)
    if value is not None:
        of_tokens = _whole(f"{name}, its rollout_value", lambda one: value(one, **options), tokens)
        _compare_parts(f"{name}, its rollout_value", lambda one: value(one, **options), tokens, of_tokens)
        tokens = tokens._replace(rollout_mean=mean_by_rollout(of_tokens[0], rollout))

    names: list[list[str]] = []

    def compute(one: LossTokens) -> Tensor:
        losses, metrics = compute_losses(loss, _with_gradient(one), options)
        names.append(sorted(metrics))
        if names[-1] != names[0]:
            raise BadInputError(
                f"loss {name!r}: expected metrics of the same names for each micro-batch, found {names[0]} among"
                f" {_NUM_TOKENS} tokens and {names[-1]} among {len(losses)}; return each of them always"
            )
        return losses

    whole = _whole(name, compute, tokens)
    if not whole[1].any():
        raise BadInputError(
            f"loss {name!r}: expected a gradient by tokens.logprobs, found none; compute from it, without detach()"
        )
    _compare_parts(name, compute, tokens, whole)


def make_tokens() -> tuple[LossTokens, Tensor]:
    """Return 64 made-up tokens in float64, with ratios far from 1, and [64] the rollout of each."""
    dice = torch.Generator().manual_seed(44)

    def draw(low: float, high: float, size: int = _NUM_TOKENS) -> Tensor:
        return low + (high - low) * torch.rand(size, generator=dice, dtype=torch.float64)

    rollout = torch.randint(_NUM_ROLLOUTS, (_NUM_TOKENS,), generator=dice)
    old = draw(-3.0, -0.05)
    return LossTokens(
        logprobs=old + draw(-0.8, 0.8).minimum(-0.01 - old),
        old_logprobs=old,
        engine_logprobs=old + draw(-0.1, 0.0),
        advantages=draw(-2.0, 2.0, _NUM_ROLLOUTS)[rollout],
        reference_logprobs=draw(-3.0, -0.05),
    ), rollout


def list_metrics(loss: TokenLoss, options: Mapping[str, object]) -> list[str]:
    """Return the names of the metrics that a loss returns."""
    tokens, _ = make_tokens()
    if find_rollout_value(loss) is not None:
        tokens = tokens._replace(rollout_mean=tokens.logprobs)
    return list(compute_losses(loss, tokens, options)[1])


def compute_by_rollout(loss: TokenLoss, tokens: LossTokens, rollout: Tensor, options: Mapping[str, object]) -> Tensor:
    """Return [num_tokens] losses, where all tokens of each rollout are here.

    Args:
        loss: the loss.
        tokens: without ``rollout_mean``.
        rollout: [num_tokens], see ``mean_by_rollout``.
        options: keyword arguments of the loss.
    """
    if (value := find_rollout_value(loss)) is not None:
        values = value(tokens, **options)
        tokens = tokens._replace(rollout_mean=attach_gradient(mean_by_rollout(values, rollout), values))
    return compute_losses(loss, tokens, options)[0]


def mean_by_rollout(values: Tensor, rollout: Tensor) -> Tensor:
    """Return [num_tokens], the mean of the token's rollout.

    Args:
        values: [num_tokens].
        rollout: [num_tokens], an index below the number of rollouts.
    """
    count = int(rollout.max()) + 1
    sums = torch.zeros(count, dtype=values.dtype).index_add(0, rollout, values)
    return (sums / rollout.bincount(minlength=count).clamp(min=1))[rollout]


def attach_gradient(mean: Tensor, values: Tensor) -> Tensor:
    """Return the mean of rollouts with the gradient of each token's own value."""
    return mean.detach() + values - values.detach()


def _with_gradient(tokens: LossTokens) -> LossTokens:
    if tokens.rollout_mean is None:
        return tokens
    # the value's own gradient is checked by itself; here that of any value of the token serves
    return tokens._replace(rollout_mean=attach_gradient(tokens.rollout_mean, tokens.logprobs))


_Compute = Callable[[LossTokens], Tensor]
_Found = tuple[Tensor, Tensor]
"""Losses and their gradient."""


def _whole(name: str, compute: _Compute, tokens: LossTokens) -> _Found:
    """Return losses and gradient over all tokens at once."""
    try:
        losses, gradient = _evaluate(compute, tokens)
        again, _ = _evaluate(compute, tokens)
    except BadInputError:
        raise
    except Exception as error:  # users write losses
        hint = " (without algorithm.kl, reference_logprobs is None)" if tokens.reference_logprobs is None else ""
        raise BadInputError(
            f"loss {name!r}: fails over {_NUM_TOKENS} made-up tokens, {error!r}; correct it{hint}"
        ) from error
    if losses.shape != tokens.logprobs.shape:
        raise BadInputError(
            f"loss {name!r}: expected one number for each of {_NUM_TOKENS} tokens, found {list(losses.shape)}; return"
            " losses before their mean, which algorithm.loss_mean says"
        )
    if not (losses.isfinite().all() and gradient.isfinite().all()):
        raise BadInputError(
            f"loss {name!r}: expected finite losses and gradients, found others for tokens with log-probabilities of"
            " -4 to 0; bound what grows"
        )
    if not torch.equal(losses, again):
        raise BadInputError(
            f"loss {name!r}: expected the same losses for the same tokens, found others at the second call; leave out"
            " chance and state"
        )
    return losses, gradient


def _compare_parts(name: str, compute: _Compute, tokens: LossTokens, whole: _Found) -> None:
    dice = torch.Generator().manual_seed(45)
    for sizes in _SPLITS:
        order = torch.randperm(_NUM_TOKENS, generator=dice)
        ends = list(accumulate(sizes))
        for places in (order[end - size : end] for end, size in zip(ends, sizes, strict=True)):
            part = LossTokens(**{name: one[places] for name, one in tokens._asdict().items() if one is not None})
            try:
                found = _evaluate(compute, part)
            except BadInputError:
                raise
            except Exception as error:  # users write losses
                raise BadInputError(
                    f"loss {name!r}: fails over a micro-batch of {len(places)} tokens, {error!r}; correct it"
                ) from error
            for what, own, expected in zip(("loss", "gradient"), found, whole, strict=True):
                _refuse_difference(name, what, own, expected[places], len(places))


def _refuse_difference(  # kept: the refusal by name
    name: str, what: str, found: Tensor, expected: Tensor, size: int
) -> None:
    is_other = (found - expected).abs() > _ABSOLUTE + _RELATIVE * expected.abs()
    if is_other.any():
        place = int(is_other.nonzero()[0])
        raise BadInputError(
            f"loss {name!r}: depends on micro-batches: the {what} of a token is {float(expected[place]):.6g} among"
            f" {_NUM_TOKENS} tokens and {float(found[place]):.6g} among {size}; compute it from the token's own"
            " numbers, and what belongs to a rollout by rollout_value"
        )


def _evaluate(compute: _Compute, tokens: LossTokens) -> _Found:
    """Return losses, and the gradient of their sum, weighted so that no two tokens count the same."""
    leaf = tokens.logprobs.detach().clone().requires_grad_()
    losses = compute(tokens._replace(logprobs=leaf))
    if losses.shape != leaf.shape or not losses.requires_grad:
        return losses, torch.zeros_like(leaf)
    # a function of the token alone, so that its weight is the same in each micro-batch
    weighed = (losses * (2 + tokens.old_logprobs.sin())).sum() + 0.0 * leaf.sum()
    (gradient,) = torch.autograd.grad(weighed, leaf)
    return losses.detach(), gradient


def numeric_gradient(loss: TokenLoss, options: Mapping[str, object], step: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Return [num_tokens] the gradient of the sum of losses by autograd, and by central differences."""
    tokens, rollout = make_tokens()

    def total(logprobs: Tensor) -> Tensor:
        return compute_by_rollout(loss, tokens._replace(logprobs=logprobs), rollout, options).sum()

    leaf = tokens.logprobs.clone().requires_grad_()
    (exact,) = torch.autograd.grad(total(leaf), leaf)
    return exact, torch.stack(list(_differences(total, tokens.logprobs, step)))


def _differences(total: Callable[[Tensor], Tensor], logprobs: Tensor, step: float) -> Iterator[Tensor]:
    for place in range(len(logprobs)):
        shift = torch.zeros_like(logprobs)
        shift[place] = step
        yield ((total(logprobs + shift) - total(logprobs - shift)) / (2 * step)).detach()


def describe_gap(found: Tensor, expected: Tensor) -> str:
    """Return where two gradients differ most."""
    place = int((found - expected).abs().argmax())
    return f"token {place}: {float(found[place]):.6g} in place of {float(expected[place]):.6g}"
