"""This file holds the feed: it asks for so many tasks that none can grow too stale, and takes whole groups.

Let a step train g groups. With F groups asked for and not yet trained, the newest will be trained F / g steps from now,
by weights that are F / g - 1 versions younger than those that begin it. So F <= g * (1 + max_staleness).
"""

from collections.abc import Callable, Sequence

import msgspec

from agent_layer.dispatcher.client import Dispatcher
from agent_layer.schema.record import Record
from agent_layer.schema.task import Task
from agent_layer.store.follow import GroupDelivery
from agent_layer.store.store import Store
from trainer_adapter.checkpoint import Cursor
from trainer_adapter.curriculum import allot_rollouts, update_rates

__all__ = ["CONSUMER", "FeedPlan", "GroupFeed", "success_by_task"]

CONSUMER = "trainer"
"""Name under which groups are acknowledged."""


class FeedPlan(Record, frozen=True, kw_only=True):
    """How many rollouts a step wants, and how they are shared out."""

    group_size: int = 8
    """Rollouts per task, on average where a curriculum shares them out."""
    max_staleness: int = 1
    """Largest age, in versions, of a token that is trained; 0 is on-policy."""
    curriculum_floor: float | None = None
    """None: every task gets ``group_size``. Else the weight of a mastered task beside (1 - success rate)."""
    curriculum_memory: float = 0.7
    """Share of a task's success rate that one more result leaves as it was."""


class GroupFeed:
    """Tasks out, whole groups in. One step trains one group of each task, so a round is one asking for all tasks."""

    def __init__(
        self, run: str, tasks: Sequence[Task], plan: FeedPlan, dispatcher: Dispatcher, store: Store, cursor: Cursor
    ) -> None:
        self._run = run
        self._tasks = list(tasks)
        self._plan = plan
        self._dispatcher = dispatcher
        self._store = store
        self._rates = dict(cursor.success_rates)
        self._next_round = cursor.next_round
        self._num_in_flight = cursor.num_groups_asked - cursor.num_groups_taken
        self._num_asked = cursor.num_groups_asked
        self._ready: list[GroupDelivery] = []
        for group_id in cursor.unacked:
            store.redis.sadd(store.keys.acked(run, CONSUMER), group_id)

    @property
    def groups_per_step(self) -> int:
        """Groups that one step trains."""
        return len(self._tasks)

    def ask(self) -> None:
        """Submit rounds as long as no group among them can become too stale."""
        allowed = self.groups_per_step * (1 + self._plan.max_staleness)
        while self._num_in_flight + self.groups_per_step <= allowed:
            asked = self._dispatcher.submit(self._round_tasks(), run=self._run, round=self._next_round)
            self._next_round += 1
            self._num_asked += len(asked)
            self._num_in_flight += len(asked)

    def take(self, stop: Callable[[], bool]) -> list[GroupDelivery]:
        """Wait for as many groups as one step trains, oldest first; fewer only when ``stop`` says so."""
        while len(self._ready) < self.groups_per_step and not stop():
            self._ready += self._store.read_groups(CONSUMER, self._run, self.groups_per_step - len(self._ready))
            if len(self._ready) < self.groups_per_step:
                self._store.wait_for_commit(seconds=0.5)
        taken, self._ready = self._ready[: self.groups_per_step], self._ready[self.groups_per_step :]
        return taken

    def learn(self, taken: Sequence[GroupDelivery]) -> None:
        """Count the groups as trained, and let the curriculum learn from them."""
        self._num_in_flight -= len(taken)
        self._rates = update_rates(self._rates, success_by_task(taken), self._plan.curriculum_memory)

    def cursor(self, step: int, policy_version: int, unacked: Sequence[str]) -> Cursor:
        """Say where the feed stands, for a checkpoint."""
        return Cursor(
            step=step,
            policy_version=policy_version,
            next_round=self._next_round,
            num_groups_asked=self._num_asked,
            num_groups_taken=self._num_asked - self._num_in_flight,
            success_rates=self._rates,
            unacked=list(unacked),
        )

    def _round_tasks(self) -> list[Task]:
        size, floor = self._plan.group_size, self._plan.curriculum_floor
        if floor is None:
            return [msgspec.structs.replace(task, group_size=size) for task in self._tasks]
        rates = [self._rates.get(task.id, 0.5) for task in self._tasks]
        shares = allot_rollouts(size * len(self._tasks), rates, floor, minimum=2)
        sized = zip(self._tasks, shares, strict=True)
        return [msgspec.structs.replace(task, group_size=share) for task, share in sized]


def success_by_task(groups: Sequence[GroupDelivery]) -> dict[str, float]:
    """Share of rollouts with a reward above 0, by task id; rollouts without a reward are left out."""
    found: dict[str, list[bool]] = {}
    for delivery in groups:
        rewards = [trajectory.reward for trajectory in delivery.trajectories]
        found.setdefault(delivery.group.task_id, []).extend(reward > 0 for reward in rewards if reward is not None)
    return {task_id: sum(hits) / len(hits) for task_id, hits in found.items() if hits}
