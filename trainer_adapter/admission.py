"""This file holds from which policy version a group may begin, so that it is not too stale when it is trained. Pure.

Let a step train g groups, and let each step make a version. Of the groups that are asked for and not yet trained, in
the order in which they are to be trained, the one at place k is trained by version V + k // g, where V trains next.
What it was sampled by may be s versions older: it may begin once version w = V + k // g - s is there. Turned around: of
the groups that begin by version w at the latest, g * (1 + s + w - V) may wait to be trained. For w = V, which is there,
that is g * (1 + s), the bound of whoever asks for nothing that may not begin at once; those of a larger w are asked
ahead, and wait in the queue for their version, instead of workers for the trainer.

While each step trains g groups and makes a version, position p of all that were ever asked for is trained at step
p // g, by version p // g, and begins at p // g - s. Counting those that wait holds beyond that: where groups are
dropped, where a step changes no weights, and where a trainer that was killed has left later versions.
"""

from collections.abc import Sequence

__all__ = ["admit"]


def admit(
    waiting: Sequence[int], policy_version: int, *, groups_per_step: int, max_staleness: int, ask_ahead_steps: int
) -> list[int]:
    """Say of each group that may be asked for now from which version it may begin.

    Args:
        waiting: the same of each group that is asked for and not yet trained.
        policy_version: of the weights that train next.
        groups_per_step: groups that one step trains.
        max_staleness: versions by which what is trained may be older than what trains.
        ask_ahead_steps: steps whose groups are asked for before they may begin.

    Returns:
        [num_groups] rising; negative where a version before the first would do.
    """
    admitted: list[int] = []
    for ahead in range(1 + max_staleness + ask_ahead_steps):
        start = policy_version - max_staleness + ahead
        num_begun = sum(one <= start for one in waiting) + len(admitted)
        admitted += [start] * max(0, groups_per_step * (1 + ahead) - num_begun)
    return admitted
