"""Typed views of the queue's state, from one script that writes nothing.

Views are read page by page: each call costs the server a few milliseconds, however much it holds.
"""

from collections.abc import Iterator, Sequence
from itertools import count, islice
from math import ceil
from typing import Literal, TypeAlias, TypeVar, cast

import msgspec

from agent_layer.dispatcher.models import GroupState, QueueStats, RolloutState, RunState, WorkerState
from agent_layer.dispatcher.scripts import Scripts
from agent_layer.infra import batched
from agent_layer.schema import Task, decode, make_rollout_id

T = TypeVar("T")

View: TypeAlias = Literal[
    "groups", "rollouts", "dead", "tally", "open", "listed", "task", "runs", "workers", "closed", "needs", "stats"
]
RolloutList: TypeAlias = Literal["leases", "delayed", "paused", "dead"]
"""Where rollouts lie in an order of their own: by when the lease lapses, the back-off is over, they were paused (what
is due first comes first), or they were given up (the newest first)."""
_Page: TypeAlias = tuple[list[T], str]
"""Rows, and the cursor of the next page; empty: there is none."""

_ROWS = 128
"""States that one call reads."""
_IDS = 1000
"""Ids that one call looks through, and statuses that one counts."""


class QueueInspector:
    """Reads what the queue of one namespace holds."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def groups(self, group_ids: Sequence[str], limit: int) -> list[GroupState]:
        """Those groups, or the oldest open ones when none is named."""
        return list(self.read_groups(islice(group_ids or self.open_ids(), limit)))

    def rollouts(self, group_ids: Sequence[str], limit: int) -> list[RolloutState]:
        """Rollouts of those groups, or of the oldest open ones when none is named."""
        groups = self.groups(group_ids, limit)
        return list(self.read_rollouts(member for group in groups for member in list_member_ids(group)))

    def dead(self, rollout_ids: Sequence[str], limit: int) -> list[RolloutState]:
        """Those of the rollouts that were given up, or the newest when none is named."""
        wanted_ids = islice(rollout_ids or self.listed_ids("dead"), limit)
        return [state for ids in batched(wanted_ids, _ROWS) for state in self._read(list[RolloutState], "dead", *ids)]

    def open_ids(self, run: str = "", most: int | None = None) -> Iterator[str]:
        """Groups that are not closed, oldest first; of a run, or of all; found among the first ``most`` of all."""
        cursor = "0"
        for _ in range(ceil(most / _IDS)) if most else count():
            ids, cursor = self._read(_Page[str], "open", cursor, _IDS, run)
            yield from ids
            if not cursor:
                return

    def closed_ids(self, num: int = 1024) -> list[str]:
        """Groups that closed last, newest first; about a thousand are remembered in this order."""
        return self._read(list[str], "closed", num)

    def listed_ids(self, shelf: RolloutList, run: str = "", most: int | None = None) -> Iterator[str]:
        """As ``open_ids``, of rollouts that lie there. What moves meanwhile may come twice or not at all."""
        cursor = "0"
        for _ in range(ceil(most / _IDS)) if most else count():
            ids, cursor = self._read(_Page[str], "listed", shelf, cursor, _IDS, run)
            yield from ids
            if not cursor:
                return

    def read_groups(self, group_ids: Iterator[str]) -> Iterator[GroupState]:
        """Those of the groups that are known."""
        for ids in batched(group_ids, _ROWS):
            yield from self._read(list[GroupState], "groups", *ids)

    def read_rollouts(self, rollout_ids: Iterator[str]) -> Iterator[RolloutState]:
        """Those of the rollouts that are known."""
        for ids in batched(rollout_ids, _ROWS):
            yield from self._read(list[RolloutState], "rollouts", *ids)

    def tally(self, groups: Sequence[GroupState]) -> list[dict[str, int]]:
        """[num_groups] how many rollouts have which status; 'forgotten' a day after their group closed."""
        counts: list[dict[str, int]] = []
        for part in _weighed(groups):
            counts += self._read(list[dict[str, int]], "tally", *(group.group_id for group in part))
        return counts

    def task(self, group_id: str) -> Task | None:
        """The task of a group; None where it is not kept any more."""
        stored = self._scripts.inspect("task", group_id)
        return cast("Task", decode(stored)) if stored else None

    def runs(self, runs: Sequence[str]) -> list[RunState]:
        """Those runs, or all by name when none is named."""
        if runs:
            return [
                state for part in batched(runs, _ROWS) for state in self._read(_Page[RunState], "runs", "", *part)[0]
            ]
        return list(self._paged(RunState, "runs"))

    def workers(self) -> list[WorkerState]:
        """Workers by when they last showed themselves."""
        return list(self._paged(WorkerState, "workers"))

    def needs(self, run: str = "") -> dict[frozenset[str], int]:
        """How many rollouts wait, of a run or of all, by what they need of a worker."""
        counts = self._read(list[tuple[str, int]], "needs", run)
        return {frozenset(needs.split(",")) if needs else frozenset(): num for needs, num in counts}

    def stats(self) -> QueueStats:
        """Counts over everything."""
        return self._read(QueueStats, "stats")

    def _paged(self, form: type[T], what: View) -> Iterator[T]:
        cursor = "0"
        while cursor:
            rows, cursor = self._read(_Page[form], what, cursor, _ROWS)  # pyright: ignore[reportInvalidTypeArguments]
            yield from rows

    def _read(self, form: type[T], what: View, *arguments: str | int) -> T:
        return msgspec.msgpack.decode(self._scripts.inspect(what, *arguments), type=form)


def list_member_ids(group: GroupState) -> Iterator[str]:
    """Ids of the group's rollouts."""
    return (make_rollout_id(group.group_id, member) for member in range(group.num_launched))


def _weighed(groups: Sequence[GroupState]) -> Iterator[list[GroupState]]:
    """Yield parts of the groups, each with about as many rollouts as one call counts."""
    part: list[GroupState] = []
    num_rollouts = 0
    for group in groups:
        part.append(group)
        num_rollouts += group.num_launched
        if num_rollouts >= _IDS or len(part) == _ROWS:
            yield part
            part, num_rollouts = [], 0
    if part:
        yield part
