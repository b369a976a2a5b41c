"""This file holds the dispatcher as those see it who submit tasks, wait for them and look at them."""

import time
from collections.abc import AsyncGenerator, Sequence
from typing import Self

import msgspec
from redis import Redis

from agent_layer.dispatcher.completions import Named, OfRun, follow, hear, newest_closed
from agent_layer.dispatcher.dead_letters import drop_dead, retry_dead
from agent_layer.dispatcher.inspection import QueueInspector
from agent_layer.dispatcher.models import GroupState, QueueStats, RolloutState, RunState, WorkerState
from agent_layer.dispatcher.scripts import Scripts
from agent_layer.dispatcher.submission import add_groups
from agent_layer.dispatcher.tasks import check_lifetime, check_task
from agent_layer.errors import BadInputError
from agent_layer.infra import batched
from agent_layer.infra.redis import Keys, open_redis
from agent_layer.schema import Task, make_group_id
from agent_layer.settings import Settings, load_settings

_MOST_GROUPS = 1000
"""Open groups that are shown to whoever names none."""
_SMALLEST_WEIGHT, _LARGEST_WEIGHT = 0.001, 1000
"""Turns are numbers that are added up: one run of a tiny weight would make those of all others too large to differ."""
_LARGEST_QUOTA = 1_000_000
_NAMES_PER_CALL = 256
_GROUPS_PER_CALL = 32


def connect(settings: Settings | None = None) -> "Dispatcher":
    """Open the dispatcher of the settings' namespace; as a context manager, it closes its connections in the end.

    Raises: UnreachableError: Redis does not answer.
    """
    settings = settings or load_settings()
    return Dispatcher(open_redis(settings), settings)


class Dispatcher:
    """The queue of one namespace, from outside the workers. Threads may share it.

    Whatever it is asked raises UnreachableError when Redis does not answer for ``retry_seconds``.
    """

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self.settings = settings
        self._scripts = Scripts(redis, Keys(settings.namespace), settings)
        self.inspector = QueueInspector(self._scripts)
        """Reads of the queue, page by page."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections to Redis."""
        self._scripts.redis.close()

    def submit(
        self,
        tasks: Sequence[Task],
        run: str | None = None,
        group_size: int | None = None,
        round: int = 0,  # noqa: A002  # a keyword of the public API; the built-in is not used here
    ) -> list[str]:
        """Queue one group of rollouts for each task.

        Args:
            tasks: what is to be done.
            run: for all of them; None: what each task says.
            group_size: for all of them; None: what each task says.
            round: the same task in the same round is queued once, however often it is submitted; another round
                asks again.

        Returns:
            [num_tasks] group ids.

        Raises:
            BadInputError: a task cannot be queued; none is then.
            BackPressureError: the queue is full; submitting again goes on where it stopped.
        """
        changes: dict[str, str | int | None] = {"run": run, "group_size": group_size}
        changes = {name: value for name, value in changes.items() if value is not None}
        asked = [check_task(msgspec.structs.replace(task, **changes)) for task in tasks]
        for task in asked:
            check_lifetime(task, self.settings.score_seconds)
        groups = [(make_group_id(task.run, task.id, round), task) for task in asked]
        add_groups(self._scripts, groups)
        return [group_id for group_id, _ in groups]

    def wait(self, group_ids: Sequence[str] | None = None, timeout: float | None = None) -> list[GroupState]:
        """Wait until groups are closed.

        Args:
            group_ids: None: those that are open now.
            timeout: seconds; None: without end.

        Returns: the groups as they are then, those left out that the queue does not know; some are still open when
            the time was up.
        """
        deadline = time.monotonic() + timeout if timeout is not None else None
        ids = list(self.inspector.open_ids()) if group_ids is None else list(group_ids)
        newest_id = newest_closed(self._scripts.redis, self._closed)
        states = {group.group_id: group for group in self.groups(ids)}
        while is_open := [one for one, state in states.items() if not state.is_closed]:
            self._scripts.reap()
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                states |= {group.group_id: group for group in self.groups(is_open)}
                break
            heard = hear(self._scripts.redis, self._closed, newest_id, 1.0 if left is None else left)
            newest_id, closed = heard.newest_id, {group_id for group_id, _ in heard.closings}
            asked = [one for one in is_open if one in closed] if heard.is_whole else is_open
            states |= {group.group_id: group for group in self.groups(asked)}
        return [states[one] for one in ids if one in states]

    def finished(
        self, group_ids: Sequence[str] | None = None, run: str | None = None
    ) -> AsyncGenerator[GroupState, None]:
        """Give groups as they close: ``async for group in dispatcher.finished(ids)``. Each comes once.

        Groups that had closed before come first, as long as the dispatcher knows them: for a week. Any number of these
        may go on at once. Whoever leaves the loop early calls ``aclose()`` on what this gave, or cancels its task.

        Args:
            group_ids: which; the iteration ends when all of them have come. None: those that are open now.
            run: instead of these, all of a run, also those that are submitted later; it goes on until it is closed.
                ``store.follow`` gives groups with their trajectories, and remembers which were acknowledged.

        Raises:
            BadInputError: both are named.
            NotFoundError: a group is named that the dispatcher does not know.
            UnreachableError: Redis did not answer for ``retry_seconds``.
        """
        if run is not None:
            if group_ids is not None:
                raise BadInputError("finished: expected group ids or a run, found both; leave one out")
            return follow(self._scripts, OfRun(self._scripts, run))
        ids = self.inspector.open_ids() if group_ids is None else group_ids
        return follow(self._scripts, Named(self._scripts, list(ids)))

    def groups(self, group_ids: Sequence[str] | None = None) -> list[GroupState]:
        """Those groups that are known, or the oldest 1,000 open ones."""
        if group_ids is None:
            return self.inspector.groups([], _MOST_GROUPS)
        return list(self.inspector.groups_of(iter(group_ids)))

    def rollouts(self, group_ids: Sequence[str] | None = None) -> list[RolloutState]:
        """Rollouts of those groups, or of the oldest 1,000 open ones."""
        if group_ids is None:
            return self.inspector.rollouts([], _MOST_GROUPS)
        return self.inspector.rollouts(group_ids, len(group_ids)) if group_ids else []

    def dead(self, limit: int = 100) -> list[RolloutState]:
        """Rollouts that were given up, with their errors, newest first."""
        return self.inspector.dead([], limit)

    def retry_dead(self, rollout_ids: Sequence[str]) -> list[str]:
        """Try rollouts again that were given up.

        One whose group is still open goes back to its place. A group that was decided stays as it is: what died of it
        is asked for again as a group of its own, under an id that follows from its own: twice asks once.

        Returns: ids of the groups in which they are tried.
        Raises: NotFoundError: one is not dead, or was forgotten; none is tried again then.
        """
        return retry_dead(self._scripts, rollout_ids)

    def drop_dead(self, rollout_ids: Sequence[str]) -> int:
        """Forget rollouts that were given up; how many there were of these."""
        return drop_dead(self._scripts, rollout_ids)

    def runs(self, runs: Sequence[str] = ()) -> list[RunState]:
        """How these runs go, or all that were ever asked for."""
        return self.inspector.runs(runs)

    def workers(self) -> list[WorkerState]:
        """Workers that were seen in the last day, longest silent first."""
        return self.inspector.workers()

    def drain(self, workers: Sequence[str]) -> list[str]:
        """Tell workers to claim nothing more and to end when what they run has ended; those that are known."""
        return [name for page in batched(workers, _NAMES_PER_CALL) for name in self._scripts.drain(page)]

    def stats(self) -> QueueStats:
        """How much is queued, delayed, leased and dead."""
        return self.inspector.stats()

    def cancel(self, group_ids: Sequence[str]) -> int:
        """Cancel the rollouts of these groups that are not final; how many. The groups close with what they have."""
        num_cancelled = at = 0
        while page := group_ids[at : at + _GROUPS_PER_CALL]:
            num, num_groups = self._scripts.cancel(page)
            num_cancelled, at = num_cancelled + num, at + num_groups
        return num_cancelled

    def share(self, run: str, *, weight: float | None = None, quota: int | None = None) -> None:
        """Change how a run is served beside others of the same priority.

        Args:
            run: whose share it is.
            weight: it is given out in proportion to this; 1 at first.
            quota: most leases at once; 0 takes the limit away.

        Raises: BadInputError: a number is out of bounds.
        """
        if weight is not None and not _SMALLEST_WEIGHT <= weight <= _LARGEST_WEIGHT:
            raise BadInputError(
                f"run {run!r}: expected a weight from {_SMALLEST_WEIGHT:g} to {_LARGEST_WEIGHT}, found {weight:g};"
                " correct it"
            )
        if quota is not None and not 0 <= quota <= _LARGEST_QUOTA:
            raise BadInputError(
                f"run {run!r}: expected a quota from 0 (none) to {_LARGEST_QUOTA:,} leases, found {quota}; correct it"
            )
        self._scripts.share(run, weight, quota)

    def pause(self, run: str, *, running: bool = False, why: str = "") -> None:
        """Give out no rollout of the run until it is resumed.

        Args:
            run: whose.
            running: let attempts that run pause at their next step boundary, too, if their agents can; they go on later
                as the same attempts. False: they go on.
            why: shown to whoever asks.
        """
        self._scripts.pause(run, why, leased_too=running, if_it_goes=False)

    def resume(self, run: str) -> None:
        """Give out rollouts of the run again."""
        self._scripts.resume(run, "")

    def begin_pause(self, run: str, why: str) -> bool:
        """Pause a run for a while, running attempts too, unless it is paused; ``end_pause`` ends it.

        Returns: False where somebody paused it before; it stays as it is then.
        Raises: BadInputError: the reason is empty, by which the pause could not be told from those of others.
        """
        _check_reason(run, why)
        return self._scripts.pause(run, why, leased_too=True, if_it_goes=True)

    def end_pause(self, run: str, why: str) -> bool:
        """Let a run go on that was paused for this reason; failures before still count.

        Returns: False where it is not: what others paused meanwhile stays paused.
        Raises: BadInputError: the reason is empty.
        """
        _check_reason(run, why)
        return self._scripts.resume(run, why)

    def serve(self, run: str, policy_version: int) -> None:
        """Say that calls of a run are answered by this policy version from now on: what waits for it is given out.

        A run of which nobody says this is given out by the versions that are registered.
        """
        self._scripts.serve(run, policy_version)

    @property
    def _closed(self) -> str:
        return self._scripts.keys.queue("closed")


def _check_reason(run: str, why: str) -> None:
    if not why:
        raise BadInputError(f"run {run!r}: expected a reason by which its pause is known, found none; give one")
