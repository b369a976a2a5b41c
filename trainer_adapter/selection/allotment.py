"""Division of a number of rollouts by weights."""

from collections.abc import Sequence


def allot_rollouts(num_rollouts: int, weights: Sequence[float], minimum: int) -> list[int]:
    """Return each task's share of the rollouts of a submission, in proportion to its weight.

    Args:
        num_rollouts: of the whole submission.
        weights: [num_tasks], above 0.
        minimum: rollouts that every task gets, at least 2 for a baseline.

    Returns:
        [num_tasks], summing to ``num_rollouts`` whenever that allows ``minimum`` for each, else ``minimum`` each.
    """
    if num_rollouts <= minimum * len(weights):
        return [minimum] * len(weights)
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
