"""Client of the dispatcher: submits tasks, waits for their groups, shows and steers the queue."""

import time
from collections.abc import AsyncGenerator, Sequence
from typing import Self, cast

import msgspec
from redis import Redis

from agent_layer.dispatcher.dead_letters import drop_dead, retry_dead
from agent_layer.dispatcher.group_stream import NamedGroups, RunGroups, follow, newest_closed, read_closings
from agent_layer.dispatcher.inspection import QueueInspector
from agent_layer.dispatcher.models import GroupState, QueueStats, RolloutState, RunState, WorkerState
from agent_layer.dispatcher.scripts import Scripts
from agent_layer.dispatcher.submission import add_groups
from agent_layer.dispatcher.tasks import check_lifetime, check_task
from agent_layer.errors import BadInputError
from agent_layer.infra import Keys, batched, open_redis
from agent_layer.schema import Task, make_group_id
from agent_layer.settings import Settings, load_settings

_MAX_GROUPS = 1000
"""Open groups that a call without group ids returns."""
_SMALLEST_WEIGHT, _MAX_WEIGHT = 0.001, 1000
"""Turns add up: a run with a tiny weight would push the turns of all other runs beyond what a float can tell apart."""
_MAX_QUOTA = 1_000_000
_NAMES_PER_CALL = 256
_GROUPS_PER_CALL = 32


def connect(settings: Settings | None = None) -> "Dispatcher":
    """Open the dispatcher of the settings' namespace; as a context manager, it closes its connections on exit.

    Raises: UnreachableError: Redis does not answer.
    """
    settings = settings or load_settings()
    return Dispatcher(open_redis(settings), settings)


class Dispatcher:
    """The queue of one namespace, from outside the workers. Threads may share it.

    Every method raises UnreachableError when Redis does not answer for ``retry_seconds``.
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
        """Close the connections to Redis."""
        self._scripts.redis.close()

    def submit(
        self,
        tasks: Sequence[Task],
        run: str | None = None,
        group_size: int | None = None,
        round: int | Sequence[int] = 0,  # noqa: A002  # a keyword of the public API; the built-in is not used here
    ) -> list[str]:
        """Queue one group of rollouts for each task.

        Args:
            tasks: one group each.
            run: of all tasks; None: the run that each task names.
            group_size: of all groups; None: the size that each task names.
            round: the same task in the same round is queued once, however often it is submitted; another round
                queues it again. Of all tasks, or [num_tasks].

        Returns:
            [num_tasks] group ids.

        Raises:
            BadInputError: a task cannot be queued; then none is queued.
            BackPressureError: the queue is full; another call goes on where this one stopped. It says how many tasks
                are queued, and so does UnreachableError.
        """
        changes: dict[str, str | int | None] = {"run": run, "group_size": group_size}
        changes = {name: value for name, value in changes.items() if value is not None}
        checked = [check_task(msgspec.structs.replace(task, **changes)) for task in tasks]
        for task in checked:
            check_lifetime(task, self.settings)
        rounds = [round] * len(checked) if isinstance(round, int) else round
        groups = [(make_group_id(task.run, task.id, at), task) for task, at in zip(checked, rounds, strict=True)]
        self._scripts.complete(lambda: add_groups(self._scripts, groups))
        return [group_id for group_id, _ in groups]

    def wait(self, group_ids: Sequence[str] | None = None, timeout: float | None = None) -> list[GroupState]:
        """Wait until groups are closed.

        Args:
            group_ids: None: the groups that are open now.
            timeout: seconds; None: no limit.

        Returns: the groups as they are at the end, without those that the queue does not know; some are still open
            when the time ran out.
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
            read = read_closings(self._scripts.redis, self._closed, newest_id, 1.0 if left is None else left)
            newest_id, closed = read.newest_id, {group_id for group_id, _ in read.closings}
            pending = [one for one in is_open if one in closed] if read.is_whole else is_open
            states |= {group.group_id: group for group in self.groups(pending)}
        states = {group.group_id: group for group in self._scripts.complete(lambda: self.groups(ids))}
        return [states[one] for one in ids if one in states]

    def finished(
        self, group_ids: Sequence[str] | None = None, run: str | None = None
    ) -> AsyncGenerator[GroupState, None]:
        """Yield each group once, as it closes: ``async for group in dispatcher.finished(ids)``.

        Groups that closed earlier come first; the dispatcher knows them for a week. Any number of iterations may run
        at once. A caller that leaves the loop early calls ``aclose()`` on the generator, or cancels its task.

        Args:
            group_ids: groups to wait for; the iteration ends after the last one. None: the groups that are open now.
            run: instead of ids, all groups of a run, also those submitted later; the caller ends the iteration.
                ``store.follow`` yields groups with their trajectories, and remembers which were acknowledged.

        Raises:
            BadInputError: both ids and a run are named.
            NotFoundError: the dispatcher does not know one of the groups.
            UnreachableError: Redis did not answer for ``retry_seconds``.
        """
        if run is not None:
            if group_ids is not None:
                raise BadInputError("finished: expected group ids or a run, found both; leave one out")
            return follow(self._scripts, RunGroups(self._scripts, run))
        ids = self.inspector.open_ids() if group_ids is None else group_ids
        return follow(self._scripts, NamedGroups(self._scripts, list(ids)))

    def groups(self, group_ids: Sequence[str] | None = None) -> list[GroupState]:
        """Return the groups that the dispatcher knows, or the oldest 1,000 open ones."""
        if group_ids is None:
            return self.inspector.groups([], _MAX_GROUPS)
        return list(self.inspector.read_groups(iter(group_ids)))

    def rollouts(self, group_ids: Sequence[str] | None = None) -> list[RolloutState]:
        """Return the rollouts of these groups, or of the oldest 1,000 open ones."""
        if group_ids is None:
            return self.inspector.rollouts([], _MAX_GROUPS)
        return self.inspector.rollouts(group_ids, len(group_ids)) if group_ids else []

    def dead(self, limit: int = 100) -> list[RolloutState]:
        """Return dead rollouts with their errors, newest first."""
        return self.inspector.dead([], limit)

    def retry_dead(self, rollout_ids: Sequence[str]) -> list[str]:
        """Try dead rollouts again.

        A rollout of an open group returns to its place in the queue. A closed group never changes: its dead rollouts
        become a new group, whose id follows from theirs. A second call therefore queues nothing twice.

        Returns: ids of the groups in which they are tried.
        Raises: NotFoundError: a rollout is not dead, or was forgotten; then none is tried again.
        """
        return retry_dead(self._scripts, rollout_ids)

    def drop_dead(self, rollout_ids: Sequence[str]) -> int:
        """Forget dead rollouts; return how many of these there were."""
        return drop_dead(self._scripts, rollout_ids)

    def runs(self, runs: Sequence[str] = ()) -> list[RunState]:
        """Return the state of these runs, or of every run that was ever submitted."""
        return self.inspector.runs(runs)

    def workers(self) -> list[WorkerState]:
        """Return the workers that were seen in the last day, longest silent first.

        One that was silent for a lease holds nothing any more, whatever it reported last.
        """
        return [
            msgspec.structs.replace(one, about={**one.about, "held": 0})
            if one.silent_seconds > self.settings.lease_seconds and one.about.get("held")
            else one
            for one in self.inspector.workers()
        ]

    def drain(self, workers: Sequence[str]) -> list[str]:
        """Let workers finish what they run, claim nothing more and exit; return the names that the queue knows."""
        return [name for page in batched(workers, _NAMES_PER_CALL) for name in self._scripts.drain(page)]

    def stats(self) -> QueueStats:
        """Count what is queued, delayed, leased and dead."""
        return self.inspector.stats()

    def cancel(self, group_ids: Sequence[str]) -> int:
        """Cancel what is not final in these groups, which close with what they have; return how many rollouts."""
        num_cancelled = 0

        def cancel() -> int:
            nonlocal num_cancelled
            for page in batched(group_ids, _GROUPS_PER_CALL):
                num_cancelled += self._scripts.cancel(page)
            return num_cancelled

        return self._scripts.complete(cancel)

    def share(self, run: str, *, weight: float | None = None, quota: int | None = None) -> None:
        """Change how a run is served beside others of the same priority.

        Args:
            run: name of the run.
            weight: its leases are in proportion to this; 1 at first.
            quota: most leases at once; 0 removes the limit.

        Raises: BadInputError: a number is out of bounds.
        """
        if weight is not None and not _SMALLEST_WEIGHT <= weight <= _MAX_WEIGHT:
            raise BadInputError(
                f"run {run!r}: expected a weight from {_SMALLEST_WEIGHT:g} to {_MAX_WEIGHT}, found {weight:g};"
                " correct it"
            )
        if quota is not None and not 0 <= quota <= _MAX_QUOTA:
            raise BadInputError(
                f"run {run!r}: expected a quota from 0 (none) to {_MAX_QUOTA:,} leases, found {quota}; correct it"
            )
        self._scripts.share(run, weight, quota)

    def pause(self, run: str, *, running: bool = False, why: str = "") -> None:
        """Lease no rollout of the run until it is resumed.

        Args:
            run: name of the run.
            running: running attempts pause, too, at their next step boundary, where their agents can; they go on later
                as the same attempts. False: they run to their end.
            why: shown in the state of the run.
        """
        self._scripts.pause(run, why, leased_too=running, if_it_goes=False)

    def resume(self, run: str) -> None:
        """Lease rollouts of the run again."""
        self._scripts.resume(run, "")

    def begin_pause(self, run: str, why: str) -> bool:
        """Pause a run and its running attempts unless it is already paused; ``end_pause`` ends the pause.

        Returns: False where the run was paused already; its pause does not change.
        Raises: BadInputError: the reason is empty; only a reason tells this pause from those of other callers.
        """
        _check_reason(run, why)
        return self._scripts.pause(run, why, leased_too=True, if_it_goes=True)

    def end_pause(self, run: str, why: str) -> bool:
        """Resume a run that is paused for this reason; earlier failures still count.

        Returns: False where it is not paused for this reason; the pause of another caller stays.
        Raises: BadInputError: the reason is empty.
        """
        _check_reason(run, why)
        return self._scripts.resume(run, why)

    def serve(self, run: str, policy_version: int) -> None:
        """Declare the policy version that answers a run's calls from now on.

        Rollouts that wait for it become claimable. A run without this declaration uses the newest registered version.
        """
        self._scripts.complete(lambda: self._scripts.serve(run, policy_version))

    def find_server_change(self) -> bytes | None:
        """Return a mark of the last change of Redis's server; where it differs, submissions may be forgotten.

        None: the server was emptied a moment ago.
        """
        return cast("bytes | None", self._scripts.redis.hget(self._scripts.keys.queue("server"), "change"))

    @property
    def _closed(self) -> str:
        return self._scripts.keys.queue("closed")


def _check_reason(run: str, why: str) -> None:
    if not why:
        raise BadInputError(f"run {run!r}: expected a reason by which its pause is known, found none; give one")
