"""Rounds of rollouts for a trainer that is not ours: it names tasks and a policy version, and gets whole groups.

Agents, gateway, engines and workers are those of any run. What a trainer learns from is recorded before it gets it, so
``replay`` and ``recall`` find it later.
"""

import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

import msgspec

from agent_layer.dispatcher import Dispatcher
from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.infra import open_redis
from agent_layer.schema import Task
from agent_layer.settings import Settings
from agent_layer.store import Store, open_store
from trainer_adapter.data import CreditRule, GroupIntake, TrainingBatch, read_group, record_batch

CONSUMER = "foreign-trainer"
"""Name under which groups are acknowledged."""
_BY_ROLLOUT = CreditRule()


class GroupRequest(NamedTuple):
    """One group to play."""

    task_id: str
    size: int
    """Number of rollouts."""


class RoundPlayer:
    """Has groups of rollouts played, and returns them in the order of the requests.

    Args:
        tasks: that a trainer may name, of split ``train``.
        settings: locations of state.
        run: of all rollouts.
        patience_seconds: longest wait for the next group to close.
        clock: seconds since 1970. A trainer that starts again asks for other rollouts: those of a killed one are from
            other weights.

    Raises: BadInputError: there is no task, two have the same id, or one is held out.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        settings: Settings,
        run: str,
        *,
        patience_seconds: float = 600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tasks = {task.id: task for task in tasks}
        if not tasks or len(self._tasks) < len(tasks):
            raise BadInputError(
                f"run {run}: expected tasks with different ids, found {len(tasks)} tasks with {len(self._tasks)} ids;"
                " name each task once"
            )
        if held_out := [task.id for task in tasks if task.split != "train"]:
            raise BadInputError(
                f"task {held_out[0]}: expected split 'train', found another; what is measured on must not be trained on"
            )
        self._settings, self._run, self._patience = settings, run, patience_seconds
        self._redis = open_redis(settings)
        self.store: Store = open_store(settings)
        self._dispatcher = Dispatcher(self._redis, settings)
        self._rounds = count(int(clock() * 1000))

    def play(self, requests: Sequence[GroupRequest], version: int, temperature: float) -> list[GroupIntake]:
        """Play one group for each request, and wait for all of them.

        Args:
            requests: [num_groups]; the same task may come several times.
            version: of the weights that train on them; rollouts begin once engines serve it.
            temperature: of every call, in place of what tasks and agents name.

        Returns:
            [num_groups], same order. A group with a token of other weights is stale and has no rollouts.

        Raises:
            BadInputError: a task is not known.
            AgentLayerError: no group closed within ``patience_seconds``.
        """
        if unknown := [one.task_id for one in requests if one.task_id not in self._tasks]:
            raise BadInputError(
                f"task {unknown[0]!r}: expected one of the {len(self._tasks)} tasks of run {self._run}, found none with"
                " this id; give the trainer the rows that were made from the tasks"
            )
        group_ids = self._dispatcher.submit(
            [self._configure(one, version, temperature) for one in requests],
            run=self._run,
            round=[next(self._rounds) for _ in requests],
        )
        closed: dict[str, GroupIntake] = {}
        if not group_ids:
            return []
        for delivery in self.store.follow(CONSUMER, self._run, wait_seconds=self._patience, max_unacked=None):
            if delivery.group.group_id in group_ids:  # others are of a trainer that was killed
                closed[delivery.group.group_id] = read_group(delivery, version, 0, _BY_ROLLOUT)
            delivery.ack()
            if len(closed) == len(group_ids):
                return [closed[group_id] for group_id in group_ids]
        raise AgentLayerError(
            f"run {self._run}: expected {len(group_ids)} groups to close, but after {len(closed)} none did for"
            f" {self._patience:g} s; start workers with AGENT_LAYER_RUN={self._run}, and see 'agent-layer workers'"
        )

    def record(self, batch: TrainingBatch, step: int, version: int) -> None:
        """Record what the next update learns from; the first step is 1.

        Raises: BackPressureError: disk or quota stayed full; a batch that cannot be rebuilt must not be trained.
        """
        self.store.append(record_batch(batch, self._run, step, version))

    def _configure(self, request: GroupRequest, version: int, temperature: float) -> Task:
        task = self._tasks[request.task_id]
        return msgspec.structs.replace(
            task,
            group_size=request.size,
            sampling={**task.sampling, "temperature": temperature},
            from_policy=version if version > 0 else None,
        )
