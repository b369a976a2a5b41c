"""This file holds the curriculum: how many rollouts of a round each task gets.

A task that always succeeds, or never does, teaches nothing: all its rewards are equal. Tasks that still fail get more
of the round, so that the one success among many tries, from which they can learn, becomes likely.
"""

from collections.abc import Mapping, Sequence

__all__ = ["allot_rollouts", "update_rates"]


def allot_rollouts(num_rollouts: int, rates: Sequence[float], floor: float, minimum: int) -> list[int]:
    """Share one round's rollouts among tasks, in proportion to (1 - success rate) + floor.

    Args:
        num_rollouts: of the whole round.
        rates: [num_tasks], recent success rate of each task, 0 to 1.
        floor: weight of a task that always succeeds; the larger, the more even the shares.
        minimum: rollouts that every task gets, at least 2 for a baseline.

    Returns:
        [num_tasks], summing to ``num_rollouts`` whenever that allows ``minimum`` for each, else ``minimum`` each.
    """
    if num_rollouts <= minimum * len(rates):
        return [minimum] * len(rates)
    weights = [1 - rate + floor for rate in rates]
    wanted = [num_rollouts * weight / sum(weights) for weight in weights]
    shares = [max(minimum, int(share)) for share in wanted]
    while (missing := num_rollouts - sum(shares)) != 0:
        gaps = [want - share for want, share in zip(wanted, shares, strict=True)]
        if missing > 0:
            shares[gaps.index(max(gaps))] += 1
        else:
            spare = [gap if share > minimum else float("inf") for gap, share in zip(gaps, shares, strict=True)]
            shares[spare.index(min(spare))] -= 1
    return shares


def update_rates(rates: Mapping[str, float], observed: Mapping[str, float], memory: float) -> dict[str, float]:
    """Move each task's success rate towards what one more round showed (exponential moving average).

    Args:
        rates: by task id; a task that is not in it is taken to be at 0.5.
        observed: by task id; tasks without a result in this round are left out, and keep their rate.
        memory: share of the old value that stays, 0 to 1.
    """
    moved = {task: memory * rates.get(task, 0.5) + (1 - memory) * rate for task, rate in observed.items()}
    return {**rates, **moved}
