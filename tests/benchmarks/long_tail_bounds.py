"""Speed of consumption if nothing but the agents took time: two bounds, both pure.

``least_seconds`` holds for every schedule: slots cannot do more than all the work, and the longest rollout takes as
long as it takes (Graham, Bounds on Multiprocessing Timing Anomalies, SIAM J. Appl. Math. 17, 1969). ``list_seconds``
is what a schedule takes that never leaves a slot idle while a rollout waits, in the order of asking and with as many
groups asked ahead as the consumer allows: the same decisions, at no cost.
"""

import heapq
from collections.abc import Sequence

__all__ = ["least_seconds", "list_seconds"]


def least_seconds(groups: Sequence[Sequence[float]], slots: int) -> float:
    """No schedule is faster: max(sum of all / slots, longest).

    Args:
        groups: [num_groups][group_size] seconds that each rollout takes.
        slots: rollouts that run at the same time.
    """
    return max(sum(map(sum, groups)) / slots, *map(max, groups))


def list_seconds(
    groups: Sequence[Sequence[float]], slots: int, groups_per_step: int, max_staleness: int, *, longest_first: bool
) -> float:
    """Simulate the schedule, group by group as they are asked for.

    Args:
        groups: [num_groups][group_size] seconds that each rollout takes, in the order of asking.
        slots: rollouts that run at the same time.
        groups_per_step: groups that are consumed together.
        max_staleness: number of steps whose groups are asked for ahead.
        longest_first: of the groups that wait, the one with the longest rollout goes first.
    """
    now, num_asked, num_closed = 0.0, 0, 0
    waiting: list[tuple[float, int, int]] = []
    running: list[tuple[float, int]] = []
    left = [len(group) for group in groups]
    while any(left):
        if num_closed % groups_per_step == 0:
            room = groups_per_step * (1 + max_staleness) + num_closed - num_asked
            for group in range(num_asked, min(len(groups), num_asked + room)):
                urgency = -max(groups[group]) if longest_first else 0.0
                for member in range(len(groups[group])):
                    heapq.heappush(waiting, (urgency, group, member))
                num_asked += 1
        while waiting and len(running) < slots:
            _, group, member = heapq.heappop(waiting)
            heapq.heappush(running, (now + groups[group][member], group))
        now, group = heapq.heappop(running)
        left[group] -= 1
        num_closed += left[group] == 0
    return now
