"""Feed of the trainer: submits as many groups as cannot become too stale, and yields them in order of their positions.

What a step trains depends on positions alone, never on which groups close first: otherwise the tasks that are quick,
and the rollouts that end early, would decide what is learned.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import groupby, islice
from math import ceil
from typing import NamedTuple

import msgspec

from agent_layer.dispatcher import Dispatcher
from agent_layer.errors import BadInputError
from agent_layer.schema import LogRecord, Task, derive_seed
from agent_layer.store import GroupDelivery, Store
from trainer_adapter.config import TrainConfig
from trainer_adapter.data import plan_start_versions
from trainer_adapter.loop.checkpoint import Cursor
from trainer_adapter.loop.run_control import RunControl
from trainer_adapter.tasks import Draw, TaskStream


def update_rates(rates: Mapping[str, float], observed: Mapping[str, float], memory: float) -> dict[str, float]:
    """Return success rates updated by one more step (exponential moving average), latest last.

    Args:
        rates: by task id; default 0.5.
        observed: by task id; tasks without a result in this step keep their rate, unless 100,000 others are newer.
        memory: weight of the old value, 0 to 1.
    """
    moved = {task: memory * rates.get(task, _NO_RATE) + (1 - memory) * rate for task, rate in observed.items()}
    kept = {task: rate for task, rate in rates.items() if task not in moved}
    return dict(islice({**kept, **moved}.items(), max(0, len(kept) + len(moved) - _MAX_RATES), None))


CONSUMER = "trainer"
"""Name under which groups are acknowledged."""
_NO_RATE = 0.5
"""Success rate of a task that was not tried yet."""
_MEMORY = 0.7
"""Weight of a task's old success rate where no curriculum names one."""
_MAX_GROUPS = 10_000
"""Groups of one step that a run has without asking for them."""
_MAX_RATES = 100_000
"""Tasks whose success rates are remembered; bounds memory and checkpoints."""


_ROUNDS_PER_TRY = 2**32
"""Keeps the round of a group that is redone apart from the rounds of later positions."""


class _OpenGroup(NamedTuple):
    """One submitted group. Groups are trained in this order."""

    position: int
    start: int
    """Policy version from which it may begin."""
    tries: int
    """How often it was redone."""
    draw: Draw
    """Its task."""


class GroupFeed:
    """Submits tasks, and yields closed groups.

    Groups have positions; the stream draws the task of each. The same position is the same group, so that a submission
    after a restart repeats nothing. ``plan_start_versions`` decides how many are submitted, and when each may begin.
    They are trained in order of position: one that closes early waits.

    Groups of the run that the feed did not submit, such as those of retried dead rollouts, are not yielded.
    """

    def __init__(
        self, run: str, stream: TaskStream, config: TrainConfig, dispatcher: Dispatcher, store: Store, cursor: Cursor
    ) -> None:
        self._run = run
        self._stream = stream
        self._seed = config.seed
        self._plan = config.rollouts
        self._keeps_rates = config.rollouts.curriculum is not None or bool(config.filters)
        self._num_per_step, self._num_steps = count_groups(config, stream.num_tasks), config.steps
        self._dispatcher = dispatcher
        self._control = RunControl(run, dispatcher, pause_at_switch=config.rollouts.pause_at_switch)
        self._store = store
        self._rates = dict(cursor.success_rates)
        self._num_requested, self._first_version = cursor.num_asked, cursor.first_version
        self._open: dict[str, _OpenGroup] = {}
        """By group id: submitted, and neither trained nor dropped."""
        self._yielded: set[str] = set()
        """Those of the open groups that ``follow`` has yielded."""
        self._replaced: set[str] = set()
        """Those of the open groups beside which others were submitted."""
        self._server_change = dispatcher.find_server_change()
        if (
            cursor.first_version and cursor.policy_version is None
        ):  # else it would count as served once it is registered
            self._control.report_served(cursor.first_version - 1)
        self.acknowledge(cursor.taken)
        num_open = len(cursor.open_positions)
        starts, tries = cursor.open_starts or [0] * num_open, cursor.open_tries or [0] * num_open
        self._submit(map(_OpenGroup, cursor.open_positions, starts, tries, cursor.open_draws))

    @property
    def groups_per_step(self) -> int:
        """Number of groups of one step."""
        return self._num_per_step

    def submit_groups(self, policy_version: int, step: int = 0) -> None:
        """Submit as many groups as cannot become too stale, and no more than the steps to come train.

        Args:
            policy_version: of the weights that train next.
            step: steps that are done.
        """
        waiting = [open_group.start for group_id, open_group in self._open.items() if group_id not in self._replaced]
        starts = plan_start_versions(
            waiting,
            policy_version,
            groups_per_step=self.groups_per_step,
            max_staleness=self._plan.max_staleness,
            ask_ahead_steps=self._plan.ask_ahead_steps,
        )[: max(0, self.groups_per_step * (self._num_steps - step) - len(waiting))]
        positions = range(self._num_requested, self._num_requested + len(starts))
        draws = [self._stream.draw(position, self._rates) for position in positions]
        self._submit(map(_OpenGroup, positions, starts, [0] * len(starts), draws))
        self._num_requested += len(starts)

    def follow(self, stop: Callable[[], bool]) -> Iterator[GroupDelivery]:
        """Yield groups in order of their positions, each once it is closed, until ``stop`` returns True.

        There must be an open group that was not yielded; ``submit_groups`` sees to it.

        Raises:
            BadInputError: a group was trained behind a later checkpoint, which is gone.
            AgentLayerError: the run was paused because too many attempts fail, or no group closed for
                ``patience_seconds``.
        """
        if trained := self._store.find_acknowledged(CONSUMER, self._run, list(self._open)):
            raise BadInputError(
                f"run {self._run}: expected to go on from its newest checkpoint, found that {len(trained)} of its next"
                f" {len(self._open)} groups were trained behind a later one, which is gone; restore the run's directory"
                " of checkpoints, or choose another run (AGENT_LAYER_RUN)"
            )
        awaited, closed = "", dict[str, GroupDelivery]()
        closings = self._follow_closings(stop, lambda: awaited)
        while True:
            awaited = min(self._open.keys() - self._yielded, key=lambda group_id: self._open[group_id])
            while awaited not in closed:
                if (delivery := next(closings, None)) is None:
                    return
                if delivery.group.group_id in self._open.keys() - self._yielded:  # any other comes again once awaited
                    closed[delivery.group.group_id] = delivery
            self._yielded.add(awaited)
            yield closed.pop(awaited)

    def pause_for_switch(self, policy_version: int) -> AbstractContextManager[None]:
        """Context manager around a switch of the engines; see RunControl."""
        return self._control.pause_for_switch(policy_version)

    def append(self, *records: LogRecord) -> None:
        """Record what an update learns from, what it computed, or what it left out.

        Raises: BackPressureError: disk or quota stayed full; a batch that cannot be rebuilt must not be trained.
        """
        self._store.append(*records)

    def close_groups(self, group_ids: Iterable[str]) -> None:
        """Mark groups as trained or dropped, so that others may be submitted. Idempotent."""
        for group_id in group_ids:
            self._open.pop(group_id, None)
            self._yielded.discard(group_id)
            self._replaced.discard(group_id)

    def replace_group(self, group_id: str) -> None:
        """Let another group be submitted beside one that teaches nothing. Idempotent.

        It stays open until its step is trained: its success counts, and a checkpoint before that does not lose it.
        """
        if group_id in self._open:
            self._replaced.add(group_id)

    def redo_group(self, group_id: str) -> None:
        """Submit a group again under the weights that serve now; it keeps its position. Idempotent."""
        if open_group := self._open.get(group_id):
            self.close_groups([group_id])
            self._submit([open_group._replace(tries=open_group.tries + 1)])

    def update_success_rates(self, observed: Mapping[str, float]) -> None:
        """Let curriculum, filters and ramps see the success rates of a step by task id, while its groups are open."""
        if self._keeps_rates:
            curriculum = self._plan.curriculum
            self._rates = update_rates(self._rates, observed, curriculum.memory if curriculum else _MEMORY)
        for group_id in self._yielded:
            draw = self._open[group_id].draw
            if draw.task_id in observed:
                self._stream.observe(draw, observed[draw.task_id])

    def forget_draws(self) -> None:
        """Forget the journal of draws: a checkpoint has the cursor."""
        self._stream.forget_draws()

    def acknowledge(self, group_ids: Sequence[str]) -> None:
        """Acknowledge groups, so that they are not delivered again. Idempotent."""
        self._store.acknowledge(CONSUMER, self._run, group_ids)

    def cursor(self, step: int, policy_version: int | None, taken: Sequence[str]) -> Cursor:
        """Return the position of the feed, for a checkpoint."""
        waiting = sorted(self._open.values())
        return Cursor(
            step=step,
            policy_version=policy_version,
            first_version=self._first_version,
            num_asked=self._num_requested,
            open_positions=[open_group.position for open_group in waiting],
            open_starts=[open_group.start for open_group in waiting],
            open_tries=[open_group.tries for open_group in waiting],
            open_draws=[open_group.draw for open_group in waiting],
            tasks=self._stream.state(),
            success_rates=self._rates,
            taken=list(taken),
        )

    def _follow_closings(self, stop: Callable[[], bool], wanted: Callable[[], str]) -> Iterator[GroupDelivery]:
        """Yield groups in the order in which they close, a wanted one that has closed first."""
        patience = self._plan.patience_seconds
        self._control.begin_wait()
        # no limit of unacknowledged groups: checkpoints acknowledge them, and training limits their number
        for delivery in self._store.follow(
            CONSUMER,
            self._run,
            wait_seconds=patience,
            stop=lambda: self._submit_forgotten() or stop() or self._control.is_failing(),
            max_unacked=None,
            wanted=wanted,
        ):
            yield delivery
            self._control.begin_wait()
        if not stop():
            raise self._control.explain_missing_group(patience)

    def _submit_forgotten(self) -> None:
        """Submit the open groups again where Redis may have forgotten them; one that it knows stays as it is."""
        change = self._dispatcher.find_server_change()
        if change not in (None, self._server_change):
            self._server_change = change
            self._control.serve_again()
            self._submit(sorted(one for group_id, one in self._open.items() if group_id not in self._yielded))

    def _submit(self, wanted: Iterable[_OpenGroup]) -> None:
        for _, members in groupby(wanted, lambda open_group: open_group.position // self.groups_per_step):
            places = list(members)
            tasks = [self._stream.read(open_group.draw) for open_group in places]
            asking = zip(tasks, self._shares(tasks), places, strict=True)
            group_ids = self._dispatcher.submit(
                [self._configure_task(task, share, open_group) for task, share, open_group in asking],
                run=self._run,
                round=[open_group.position + open_group.tries * _ROUNDS_PER_TRY for open_group in places],
            )
            self._open |= dict(zip(group_ids, places, strict=True))

    def _shares(self, tasks: Sequence[Task]) -> list[int]:
        """Return [num_tasks] usable rollouts of each task."""
        size, curriculum = self._plan.group_size, self._plan.curriculum
        if not curriculum:
            return [size] * len(tasks)
        return curriculum.share(size * len(tasks), [self._rates.get(task.id, _NO_RATE) for task in tasks])

    def _configure_task(self, task: Task, size: int, open_group: _OpenGroup) -> Task:
        """Return the task with the options of the configuration."""
        plan = self._plan
        # rounded first: 10 * 1.1 is a little more than 11
        launch = None if plan.launch is None else ceil(round(size * plan.launch, 6))
        return msgspec.structs.replace(
            task,
            group_size=size,
            launch=launch,
            sampling=task.sampling if plan.temperature is None else {**task.sampling, "temperature": plan.temperature},
            partial=plan.partial or task.partial,
            priority=task.priority if plan.priority is None else plan.priority,
            from_policy=max(open_group.start, self._first_version) or None,
            sampling_seed=derive_seed(self._seed, open_group.position, open_group.tries),
        )


def count_groups(config: TrainConfig, num_tasks: int) -> int:
    """Return the groups of one step.

    Raises: BadInputError: the configuration names no number, and there are too many tasks for one step.
    """
    num = config.rollouts.groups_per_step
    if num is None and num_tasks > _MAX_GROUPS:
        raise BadInputError(
            f"rollouts: expected groups_per_step beside {num_tasks:,} tasks, found none; give the number of groups of"
            " one update, such as 64"
        )
    return num or num_tasks
