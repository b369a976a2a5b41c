"""Which source the next task comes from, so that each has its share at every moment."""

from collections.abc import Mapping


def choose_source(weights: Mapping[str, float], counts: Mapping[str, int]) -> str:
    """Return the source of the next task.

    Among the sources that are behind their share far enough, the one whose turn is due first (Tijdeman 1980, The
    chairman assignment problem). After any number of tasks, the count of each source differs by less than 1 from its
    share.

    Args:
        weights: by source, at least one above 0; a source of weight 0 has no turn.
        counts: tasks of each source since these weights are in force.
    """
    shares = {name: weight / sum(weights.values()) for name, weight in weights.items() if weight > 0}
    if len(shares) == 1:
        return next(iter(shares))
    num = sum(counts.get(name, 0) for name in shares) + 1
    slack = 1 / (2 * len(shares) - 2)
    behind = {name: share * num - counts.get(name, 0) for name, share in shares.items()}
    # the sum of all is 1, so the largest is far enough behind, but for rounding
    due = [name for name in shares if behind[name] >= slack] or [max(behind, key=lambda name: behind[name])]
    return min(due, key=lambda name: (1 - slack - behind[name]) / shares[name])
