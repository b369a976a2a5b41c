"""Rounds of rollouts for a trainer that is not ours: it names tasks and a policy version, and gets whole groups.

Agents, gateway, engines and workers are those of any run. What a trainer learns from is recorded before it gets it, so
``replay`` and ``recall`` find it later.
"""

import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from typing import NamedTuple

import msgspec

from agent_layer.dispatcher import Dispatcher
from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.infra import open_redis
from agent_layer.schema import HeldOutTasks, Task
from agent_layer.settings import Settings
from agent_layer.store import Store, open_store
from trainer_adapter.config import HeldOutConfig
from trainer_adapter.data import NO_BOUNDS, GroupIntake, ModelBounds, TrainingBatch, read_group, record_batch
from trainer_adapter.loop import claim_run, hold_run
from trainer_adapter.tasks import HeldOutFilter, open_held_out, read_held_out

CONSUMER = "foreign-trainer"
"""Name under which groups are acknowledged."""


class GroupRequest(NamedTuple):
    """One group to play."""

    task_id: str
    size: int
    """Number of rollouts."""


def leave_out(
    tasks: Sequence[Task], held_out: Sequence[HeldOutConfig], settings: Settings, run: str
) -> tuple[list[Task], HeldOutTasks]:
    """Return the tasks that may be trained, and what is held out: by these sets, and by earlier starts of the run.

    What is left out is logged, and kept in the run's ``left_out.jsonl``.

    Raises: BadInputError: a set cannot be used, or each task repeats a held-out one.
    """
    open_held_out(held_out, settings, run)
    known = HeldOutTasks(read_held_out(settings, run))
    left_out = HeldOutFilter(known, settings, run)
    admitted = [task for task in tasks if left_out.admits(task, CONSUMER, 0)]
    if tasks and not admitted:
        raise BadInputError(
            f"run {run}: expected tasks to train, but each of {len(tasks)} repeats a held-out one, such as"
            f" {tasks[0].id}, which {known.find_refusal(tasks[0])}; train other tasks, or hold out others in"
            " a run of another name"
        )
    return admitted, known


class RoundPlayer:
    """Has groups of rollouts played, and returns them in the order of the requests.

    From the first round to its end it is the only trainer of the run: two would acknowledge each other's groups.

    Args:
        tasks: that a trainer may name, of split ``train``; those that repeat held-out ones are left out.
        settings: locations of state.
        run: of all rollouts.
        held_out: sets that are not trained, as ``held_out`` of ``agent-layer train`` names them.
        bounds: of the rows that the trainer takes; a rollout with a longer one is left out.
        patience_seconds: longest wait for the next group to close.
        clock: seconds since 1970. A trainer that starts again asks for other rollouts: those of a killed one are from
            other weights.

    Raises: BadInputError: there is no task, two have the same id, one is of another split, or each is held out.
    """

    def __init__(  # noqa: PLR0913  # what a trainer names, and where state is
        self,
        tasks: Sequence[Task],
        settings: Settings,
        run: str,
        *,
        held_out: Sequence[HeldOutConfig] = (),
        bounds: ModelBounds = NO_BOUNDS,
        patience_seconds: float = 600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        num_ids = len({task.id for task in tasks})
        if not tasks or num_ids < len(tasks):
            raise BadInputError(
                f"run {run}: expected tasks with different ids, found {len(tasks)} tasks with {num_ids} ids;"
                " name each task once"
            )
        if measured := [task.id for task in tasks if task.split != "train"]:
            raise BadInputError(
                f"task {measured[0]}: expected split 'train', found another; what is measured on must not be trained on"
            )
        self.tasks, self._held_out = leave_out(tasks, held_out, settings, run)
        self._by_id = {task.id: task for task in self.tasks}
        self._run, self._patience, self._bounds = run, patience_seconds, bounds
        self._redis = open_redis(settings)
        self.store: Store = open_store(settings)
        self._dispatcher = Dispatcher(self._redis, settings)
        self._rounds = count(int(clock() * 1000))
        self._settings, self._claims = settings, ExitStack()
        self._is_alone = False
        weakref.finalize(self, self._claims.close)

    def play(
        self,
        requests: Sequence[GroupRequest],
        version: int,
        temperature: float,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[GroupIntake]:
        """Play one group for each request, and wait for all of them.

        Args:
            requests: [num_groups]; the same task may come several times.
            version: of the weights that train on them; rollouts begin once engines serve it.
            temperature: of every call, in place of what tasks and agents name.
            stop: ends the wait; no group is returned then.

        Returns:
            [num_groups], same order. A group with a token of older weights is stale and has no rollouts.

        Raises:
            BadInputError: a task is not known, or another trainer trains the run.
            AgentLayerError: no group closed within ``patience_seconds``.
        """
        if unknown := [one.task_id for one in requests if one.task_id not in self._by_id]:
            raise BadInputError(
                f"task {unknown[0]!r}: expected one of the {len(self._by_id)} tasks that run {self._run} trains,"
                " found none with this id; give the trainer the rows that were made from the tasks"
            )
        if not self._is_alone:
            self._claims.enter_context(hold_run(self._settings, self._run))
            self._claims.enter_context(claim_run(self._redis, self._settings, self._run))
            self._is_alone = True
        group_ids = self._dispatcher.submit(
            [self._configure(one, version, temperature) for one in requests],
            run=self._run,
            round=[next(self._rounds) for _ in requests],
        )
        closed: dict[str, GroupIntake] = {}
        if not group_ids:
            return []
        for delivery in self.store.follow(
            CONSUMER, self._run, wait_seconds=self._patience, max_unacked=None, stop=stop
        ):
            if delivery.group.group_id in group_ids:  # others are of a trainer that was killed
                group = read_group(delivery, version, 0, bounds=self._bounds, held_out=self._held_out)
                closed[delivery.group.group_id] = group
            delivery.ack()
            if len(closed) == len(group_ids):
                return [closed[group_id] for group_id in group_ids]
        if stop():
            return []
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
        task = self._by_id[request.task_id]
        return msgspec.structs.replace(
            task,
            group_size=request.size,
            sampling={**task.sampling, "temperature": temperature},
            from_policy=version if version > 0 else None,
        )
