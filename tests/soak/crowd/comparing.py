"""Comparison of the crowd's books: the agents' notes, the queue, and the store."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # what all tests share

from book import Book
from waiting import WaitExpired, wait_until

from agent_layer.dispatcher import Dispatcher, RolloutState
from agent_layer.store import Store

__all__ = ["count_rollouts", "find_breaches"]

_GROUPS_AT_ONCE = 100
_SETTLE_SECONDS = 60.0


def count_rollouts(dispatcher: Dispatcher, groups: Sequence[str]) -> tuple[list[RolloutState], Counter[str]]:
    """All rollouts of the groups, and how many have which status."""
    parts = [groups[at : at + _GROUPS_AT_ONCE] for at in range(0, len(groups), _GROUPS_AT_ONCE)]
    rollouts = [rollout for part in parts for rollout in dispatcher.rollouts(part)]
    return rollouts, Counter(rollout.status for rollout in rollouts)


def find_breaches(book: Book, rollouts: Sequence[RolloutState], store: Store) -> Iterator[str]:
    """Every breach: lost leases, attempts after the first, agents that ran twice or on, what the store lacks."""
    for rollout in rollouts:
        subject = f"rollout {rollout.rollout_id}"
        yield from (f"{subject}: {error}" for error in rollout.errors)
        if rollout.num_attempts > 1:
            yield f"{subject}: expected one attempt, found {rollout.num_attempts}"
        if rollout.status not in ("completed", "cancelled"):
            yield f"{subject}: expected completed or cancelled, found {rollout.status}"
    yield from (f"attempt {name}: its agent ran twice" for name in book.doubled)
    yield from (f"attempt {name}: its agent began and has no end, though no worker runs" for name in book.running)
    completed = {f"{one.rollout_id}-{one.accepted}" for one in rollouts if one.status == "completed"}
    accepted = _accepted(store, len(completed))
    yield from (f"attempt {name}: accepted by the queue alone or by the store alone" for name in completed ^ accepted)
    yield from (str(finding) for finding in store.admin.check().findings)


def _accepted(store: Store, num_expected: int) -> set[str]:
    """Attempts that the store has as accepted; those that are on their way are waited for."""
    with suppress(WaitExpired):  # what did not come is a breach, which is named
        wait_until(lambda: store.count(accepted=True) >= num_expected, _SETTLE_SECONDS)
    return {row.trajectory_id for row in store.scan(accepted=True)}
