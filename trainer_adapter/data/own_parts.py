"""What must hold for the advantages and credits that users write, tried over made-up values before a run."""

from collections.abc import Callable, Mapping, Sequence
from math import isclose
from typing import TypeVar, cast

from agent_layer.errors import BadInputError
from trainer_adapter.algorithms import ADVANTAGES, CREDITS, ResolvedAlgorithm, find_part
from trainer_adapter.data.advantages import AdvantageContract, JudgedValues, check_estimate
from trainer_adapter.data.credit import CreditContract, JudgedRollout, Turn, check_credited

T = TypeVar("T")
_ABSOLUTE = 1e-6
"""Largest advantage of equal values, which is a rounding."""
_JUDGED = JudgedValues(
    values=[1.0, 0.0, 0.25, 0.7, 0.7, 0.7, 3.0, -2.0, 0.5],
    baselines=["a ", "a ", "a ", "b ", "b ", "b ", "c 0", "c 0", "c 1"],
    num_tokens=[3, 1, 12, 2, 2, 5, 1, 7, 4],
)


def check_own_parts(algorithm: ResolvedAlgorithm) -> None:
    """Raise BadInputError if an advantage or credit of a user breaks its contract."""
    if (name := algorithm.advantage) is not None:
        found = find_part(ADVANTAGES, name, algorithm.advantage_options)
        check_advantage(name, cast("AdvantageContract", found), algorithm.advantage_options)
    if (name := algorithm.credit) not in ("rollout", "turn", "agent"):
        found = find_part(CREDITS, name, algorithm.credit_options)
        check_credit(name, cast("CreditContract", found), algorithm.credit_options)


def check_advantage(name: str, advantage: AdvantageContract, options: Mapping[str, object]) -> None:
    """Raise BadInputError if an estimator does not return a finite number for each value, or depends on their order.

    Unless it has ``compares_groups = False``, the advantages of a group must follow from its own values, and be 0 where
    these are equal.
    """
    what, compares_groups = f"algorithm.advantage {name!r}", getattr(advantage, "compares_groups", True)

    def estimate(judged: JudgedValues) -> list[float]:
        return _try(what, lambda: check_estimate(name, judged, advantage(judged, **options)))

    whole = estimate(_JUDGED)
    orders = [[8, 3, 0, 6, 5, 1, 7, 2, 4], list(range(9))]
    if compares_groups:
        orders += [[0, 1, 2], [3, 4, 5], [6, 7]]
    for order in orders:
        part = JudgedValues(*([column[at] for at in order] for column in _JUDGED))  # pyright: ignore[reportArgumentType]
        for at, found in zip(order, estimate(part), strict=True):
            if not isclose(found, whole[at], rel_tol=1e-9, abs_tol=1e-9):
                raise BadInputError(
                    f"{what}: the advantage of value {at} is {whole[at]:g} among all and {found:g} in the order"
                    f" {order}; it must follow from the values of its group alone (or set compares_groups = False),"
                    " whatever their order"
                )
    equal = [*whole[3:6], whole[8]]
    if compares_groups and any(abs(one) > _ABSOLUTE for one in equal):
        raise BadInputError(
            f"{what}: expected 0 for a group of equal values or a single one, found {equal}; where they teach all the"
            " same, set compares_groups = False"
        )


def check_credit(name: str, credit: CreditContract, options: Mapping[str, object]) -> None:
    """Raise BadInputError if a credit does not judge each call once, with a finite value, or depends on chance."""
    what = f"algorithm.credit {name!r}"
    turns = [Turn(call_id=f"c{number}", agent="ab"[number % 2], reward=number / 4) for number in range(5)]
    for size in (5, 1, 0):
        rollout = JudgedRollout(reward=1.0, turns=turns[:size], agent_rewards={"a": 0.5} if size else {})
        first, again = (
            _try(what, lambda rollout=rollout: check_credited(name, rollout, credit(rollout, **options)))
            for _ in range(2)
        )
        if first != again:
            raise BadInputError(f"{what}: gives other values at the second call; leave out chance and state")


def _try(what: str, call: Callable[[], Sequence[T]]) -> list[T]:
    try:
        return list(call())
    except BadInputError:
        raise
    except Exception as error:  # users write parts
        raise BadInputError(f"{what}: fails over made-up values, {error!r}; correct it") from error
