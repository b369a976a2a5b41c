"""This file holds the feed: it asks for so many groups that none can grow too stale, and takes them in as they close.

Let a step train g groups. With F groups asked for and not yet trained, the newest will be trained F / g steps from now,
by weights that are F / g - 1 versions younger than those that begin it. So F <= g * (1 + max_staleness).
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from agent_layer.dispatcher.client import Dispatcher
from agent_layer.errors import AgentLayerError
from agent_layer.schema.batch import TrainedBatch
from agent_layer.schema.task import Task
from agent_layer.store.follow import GroupDelivery
from agent_layer.store.store import Store
from trainer_adapter.checkpoint import Cursor
from trainer_adapter.config import TrainConfig
from trainer_adapter.curriculum import allot_rollouts, update_rates

__all__ = ["CONSUMER", "GroupFeed", "task_order"]

CONSUMER = "trainer"
"""Name under which groups are acknowledged."""


class GroupFeed:
    """Tasks out, whole groups in.

    Groups are asked for by position: position p is task p mod n, in that epoch's order, of epoch p div n. The same
    position is the same group, so that asking again after a restart repeats nothing.
    """

    def __init__(
        self, run: str, tasks: Sequence[Task], config: TrainConfig, dispatcher: Dispatcher, store: Store, cursor: Cursor
    ) -> None:
        self._run = run
        self._tasks = list(tasks)
        self._seed = config.seed
        self._plan = config.rollouts
        self._dispatcher = dispatcher
        self._store = store
        self._rates = dict(cursor.success_rates)
        self._num_asked = cursor.num_asked
        self._open: dict[str, int] = {}
        """Position by group id."""
        self.acknowledge(cursor.taken)
        self._submit(cursor.open_positions)

    @property
    def groups_per_step(self) -> int:
        """Groups that one step trains."""
        return self._plan.groups_per_step or len(self._tasks)

    def ask(self) -> None:
        """Submit groups as long as none among them can become too stale."""
        room = self.groups_per_step * (1 + self._plan.max_staleness) - len(self._open)
        positions = range(self._num_asked, self._num_asked + max(0, room))
        self._submit(positions)
        self._num_asked = positions.stop

    def follow(self, stop: Callable[[], bool]) -> Iterator[GroupDelivery]:
        """Give whole groups as they close, until ``stop`` says so.

        Raises: AgentLayerError: none closed for ``patience_seconds``; something that should run does not.
        """
        patience = self._plan.patience_seconds
        # no limit of unacknowledged ones: they are acknowledged at a checkpoint, and asked for only as they are trained
        yield from self._store.follow(CONSUMER, self._run, wait_seconds=patience, stop=stop, max_unacked=None)
        if not stop():
            raise AgentLayerError(
                f"run {self._run}: expected a group of rollouts to close within {patience:.0f} s, but none did;"
                " is a worker running? 'agent-layer workers' and 'agent-layer dead' tell"
            )

    def note(self, batch: TrainedBatch) -> None:
        """Record what an update is about to learn from, so that it can be rebuilt whatever is judged later.

        Raises: BackPressureError: disk or quota stayed full; nothing may learn from what nobody can rebuild.
        """
        self._store.append(batch)

    def finish(self, group_ids: Iterable[str]) -> None:
        """Say that these groups are trained or dropped, so that others may be asked for; twice does no harm."""
        for group_id in group_ids:
            self._open.pop(group_id, None)

    def learn(self, observed: Mapping[str, float]) -> None:
        """Let the curriculum know how often tasks succeeded, by task id."""
        if self._plan.curriculum:
            self._rates = update_rates(self._rates, observed, self._plan.curriculum.memory)

    def acknowledge(self, group_ids: Sequence[str]) -> None:
        """Say that these groups need never come again; twice does no harm."""
        self._store.acknowledge(CONSUMER, self._run, group_ids)

    def cursor(self, step: int, policy_version: int | None, taken: Sequence[str]) -> Cursor:
        """Say where the feed stands, for a checkpoint."""
        return Cursor(
            step=step,
            policy_version=policy_version,
            num_asked=self._num_asked,
            open_positions=sorted(self._open.values()),
            success_rates=self._rates,
            taken=list(taken),
        )

    def _submit(self, positions: Iterable[int]) -> None:
        num_tasks = len(self._tasks)
        for epoch, members in groupby(positions, lambda position: position // num_tasks):
            wanted, order = list(members), task_order(num_tasks, self._seed, epoch)
            tasks = self._sized([self._tasks[order[position % num_tasks]] for position in wanted])
            group_ids = self._dispatcher.submit(tasks, run=self._run, round=epoch)
            self._open |= dict(zip(group_ids, wanted, strict=True))

    def _sized(self, tasks: Sequence[Task]) -> list[Task]:
        """Tasks with the number of rollouts that each is to get."""
        size, curriculum = self._plan.group_size, self._plan.curriculum
        shares = [size] * len(tasks)
        if curriculum:
            rates = [self._rates.get(task.id, 0.5) for task in tasks]
            shares = allot_rollouts(size * len(tasks), rates, curriculum.floor, curriculum.minimum)
        return [msgspec.structs.replace(task, group_size=share) for task, share in zip(tasks, shares, strict=True)]


def task_order(num_tasks: int, seed: int, epoch: int) -> list[int]:
    """Order of the tasks in an epoch; the same for the same seed."""
    order = list(range(num_tasks))
    random.Random(f"{seed} {epoch}").shuffle(order)  # an order, not a secret
    return order
