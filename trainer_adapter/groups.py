"""This file holds the feed: it asks for so many tasks that none can grow too stale, and takes whole groups.

Let a step train g groups. With F groups asked for and not yet trained, the newest will be trained F / g steps from now,
by weights that are F / g - 1 versions younger than those that begin it. So F <= g * (1 + max_staleness).
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from agent_layer.dispatcher.client import Dispatcher
from agent_layer.errors import AgentLayerError
from agent_layer.schema.task import Task
from agent_layer.store.follow import GroupDelivery
from agent_layer.store.store import Store
from trainer_adapter.checkpoint import Cursor
from trainer_adapter.config import Rollouts
from trainer_adapter.curriculum import allot_rollouts, update_rates

__all__ = ["CONSUMER", "GroupFeed", "success_by_task"]

CONSUMER = "trainer"
"""Name under which groups are acknowledged."""


class GroupFeed:
    """Tasks out, whole groups in. One step trains one group of each task, so a round is one asking for all tasks."""

    def __init__(
        self, run: str, tasks: Sequence[Task], plan: Rollouts, dispatcher: Dispatcher, store: Store, cursor: Cursor
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
        self.acknowledge(cursor.unacked)

    @property
    def groups_per_step(self) -> int:
        """Groups that one step trains."""
        return self._plan.groups_per_step or len(self._tasks)

    def ask(self) -> None:
        """Submit rounds as long as no group among them can become too stale."""
        allowed = self.groups_per_step * (1 + self._plan.max_staleness)
        while self._num_in_flight + len(self._tasks) <= max(allowed, len(self._tasks)):
            asked = self._dispatcher.submit(self._round_tasks(), run=self._run, round=self._next_round)
            self._next_round += 1
            self._num_asked += len(asked)
            self._num_in_flight += len(asked)

    def follow(self, stop: Callable[[], bool]) -> Iterator[GroupDelivery]:
        """Give whole groups as they close, until ``stop`` says so.

        Raises: AgentLayerError: none closed for ``patience_seconds``; something that should run does not.
        """
        patience = self._plan.patience_seconds
        yield from self._store.follow(CONSUMER, self._run, wait_seconds=patience, stop=stop)
        if not stop():
            raise AgentLayerError(
                f"run {self._run}: expected a group of rollouts to close within {patience:.0f} s, but none did;"
                " is a worker running? 'agent-layer workers' and 'agent-layer dead' tell"
            )

    def acknowledge(self, group_ids: Sequence[str]) -> None:
        """Say that these groups need never come again; twice does no harm."""
        if group_ids:
            self._store.redis.sadd(self._store.keys.acked(self._run, CONSUMER), *group_ids)

    def learn(self, taken: Sequence[GroupDelivery]) -> None:
        """Count the groups as done with, and let the curriculum learn from them."""
        self._num_in_flight -= len(taken)
        if self._plan.curriculum:
            observed = success_by_task(taken, self._plan.success_above)
            self._rates = update_rates(self._rates, observed, self._plan.curriculum.memory)

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
        size, curriculum = self._plan.group_size, self._plan.curriculum
        shares = [size] * len(self._tasks)
        if curriculum:
            rates = [self._rates.get(task.id, 0.5) for task in self._tasks]
            shares = allot_rollouts(size * len(rates), rates, curriculum.floor, curriculum.minimum)
        sized = zip(self._tasks, shares, strict=True)
        return [msgspec.structs.replace(task, group_size=share) for task, share in sized]


def success_by_task(groups: Sequence[GroupDelivery], above: float) -> dict[str, float]:
    """Share of rollouts with a reward above ``above``, by task id; rollouts without a reward are left out."""
    found: dict[str, list[bool]] = {}
    for delivery in groups:
        rewards = [trajectory.reward for trajectory in delivery.trajectories]
        hits = [reward > above for reward in rewards if reward is not None]
        found.setdefault(delivery.group.task_id, []).extend(hits)
    return {task_id: sum(hits) / len(hits) for task_id, hits in found.items() if hits}
