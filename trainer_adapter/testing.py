"""Checks for losses, advantages, credits, filters and curricula that users write, for their tests.

Each takes the object itself, and its options as keyword arguments. It raises BadInputError with the name and the reason
where a contract of ``docs/how-to/own-parts.md`` is broken. The trainer makes those of losses, advantages and credits
at each start.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from agent_layer.errors import BadInputError
from agent_layer.schema import Task
from trainer_adapter import data, losses
from trainer_adapter.algorithms import AlgorithmConfig, resolve_algorithm
from trainer_adapter.data import CreditedValue
from trainer_adapter.losses import LossTokens, TokenLoss
from trainer_adapter.selection import Curriculum, TaskFilter, UserCurriculum
from trainer_adapter.verl import weigh_tokens

_GRADIENT_RELATIVE, _GRADIENT_ABSOLUTE = 1e-4, 1e-6
"""Largest differences of central differences in float64."""


class HandCase(NamedTuple):
    """What a loss amounts to for a few rollouts."""

    loss: float
    gradient: list[list[float]]
    """Gradient by ``logprobs``, of the same shape."""


def hand_case(
    loss: TokenLoss,
    *,
    logprobs: Sequence[Sequence[float]],
    old_logprobs: Sequence[Sequence[float]],
    advantages: Sequence[float],
    weights: Sequence[Sequence[float]] | None = None,
    mean: str = "token-mean",
    **options: object,
) -> HandCase:
    """Return the loss of an update over these rollouts, and its gradient, as the trainer computes them.

    Args:
        loss: the loss.
        logprobs: [num_rollouts][num_tokens].
        old_logprobs: as ``logprobs``.
        advantages: [num_rollouts].
        weights: importance weights, as ``logprobs``; None: 1.
        mean: ``algorithm.loss_mean``.
        options: keyword arguments of the loss.
    """
    sizes = [len(row) for row in logprobs]
    rollout = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    leaf = _join(logprobs).requires_grad_()
    tokens = LossTokens(
        logprobs=leaf,
        old_logprobs=_join(old_logprobs),
        engine_logprobs=_join(old_logprobs),
        advantages=torch.tensor(advantages, dtype=torch.float64)[rollout],
    )
    found = losses.compute_by_rollout(loss, tokens, rollout, options)
    algorithm = resolve_algorithm(AlgorithmConfig(loss="reinforce", loss_mean=mean))  # pyright: ignore[reportArgumentType]
    by_row = weigh_tokens(algorithm, torch.tensor(sizes, dtype=torch.float64))
    total = (found * by_row[rollout] * (1.0 if weights is None else _join(weights))).sum()
    (gradient,) = torch.autograd.grad(total, leaf)
    numbers = iter(map(float, gradient))
    return HandCase(float(total), [[next(numbers) for _ in row] for row in logprobs])


def check_loss(loss: TokenLoss, **options: object) -> None:
    """Raise if a loss is not a finite number with a gradient for each token, or depends on micro-batches."""
    losses.check_loss(_name(loss), loss, options)


def check_gradient(
    loss: TokenLoss, gradient: Callable[[LossTokens], torch.Tensor] | None = None, **options: object
) -> None:
    """Raise if autograd does not give the gradient of a loss.

    Args:
        loss: the loss.
        gradient: [num_tokens] derivatives that it must have by ``logprobs``, for a loss that stops gradients; None:
            those of central differences.
        options: keyword arguments of the loss.
    """
    exact, expected = losses.numeric_gradient(loss, options)
    if gradient is not None:
        tokens, _ = losses.make_tokens()
        expected = gradient(tokens)
    if not torch.allclose(exact, expected, _GRADIENT_RELATIVE, _GRADIENT_ABSOLUTE):
        raise BadInputError(
            f"loss {_name(loss)!r}: its gradient by autograd is not what it should be, at"
            f" {losses.describe_gap(exact, expected)}; where it stops gradients on purpose, pass the"
            " expected one as gradient"
        )


def check_advantage(advantage: Callable[..., Sequence[float]], **options: object) -> None:
    """Raise if an estimator does not return a finite number for each value, or depends on their order or on chance.

    Unless it has ``compares_groups = False``, the advantages of a group must follow from its own values, and be 0 where
    these are equal.
    """
    data.check_advantage(_name(advantage), advantage, options)


def check_credit(credit: Callable[..., Sequence[CreditedValue]], **options: object) -> None:
    """Raise if a credit does not judge each call once, with a finite value, or depends on chance."""
    data.check_credit(_name(credit), credit, options)


def check_filter(part: TaskFilter) -> None:
    """Raise if a filter gives no yes or no for a task with and without a success rate, or not the same twice."""
    for task in (Task(id="t", run="r"), Task(id="t", run="r", input={"a": 1}, labels={"kind": "easy"})):
        for success in (None, 0.0, 0.5, 1.0):
            found = [part.admits(task, success) for _ in range(2)]
            if not isinstance(found[0], bool) or found[0] is not found[1]:  # pyright: ignore[reportUnnecessaryIsInstance]  # users write filters
                raise BadInputError(
                    f"filter {_name(type(part))!r}: expected True or False, the same twice, found {found}"
                )


def check_curriculum(part: Curriculum) -> None:
    """Raise if a curriculum does not share out all rollouts, with at least 2 for each task."""
    checked = UserCurriculum(of=_name(type(part)))
    vars(checked)["part"] = part  # in place of the one that its name finds
    for rates in ([0.5], [0.0, 1.0], [0.0, 0.2, 0.5, 0.9, 1.0]):
        for num_rollouts in (2 * len(rates), 8 * len(rates)):
            shares = checked.share(num_rollouts, rates)
            if sum(shares) != num_rollouts or shares != checked.share(num_rollouts, rates):
                raise BadInputError(
                    f"curriculum {checked.of!r}: expected {num_rollouts} rollouts for tasks with success rates {rates},"
                    f" the same twice, found {shares}"
                )


def _name(part: object) -> str:
    module, name = getattr(part, "__module__", ""), getattr(part, "__qualname__", repr(part))
    return f"{module}:{name}"


def _join(rows: Sequence[Sequence[float]]) -> torch.Tensor:
    return torch.tensor([value for row in rows for value in row], dtype=torch.float64)
