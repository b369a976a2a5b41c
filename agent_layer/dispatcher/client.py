"""This file holds the dispatcher as those see it who submit tasks, wait for them and look at them."""

import time
from collections.abc import Sequence
from typing import cast

import msgspec
from redis import Redis

from agent_layer.dispatcher.queue import Queue
from agent_layer.dispatcher.records import GroupState, QueueStats, RolloutState, WorkerState
from agent_layer.dispatcher.tasks import check_task
from agent_layer.schema.task import Task
from agent_layer.settings import Settings, load_settings
from agent_layer.store.clients import open_redis
from agent_layer.store.keys import Keys

__all__ = ["Dispatcher", "connect"]

_MOST_GROUPS = 1000
"""Groups that one look shows, so that it does not hold up the server."""
_LONGEST_BLOCK_SECONDS = 1.0


def connect(settings: Settings | None = None) -> "Dispatcher":
    """Open the dispatcher of the settings' namespace.

    Raises: UnreachableError: Redis does not answer.
    """
    settings = settings or load_settings()
    return Dispatcher(open_redis(settings), settings)


class Dispatcher:
    """The queue of one namespace, from outside the workers. Threads may share it."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self.queue = Queue(redis, Keys(settings.namespace), settings)

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
        return self.queue.add([check_task(msgspec.structs.replace(task, **changes)) for task in tasks], round)

    def wait(self, group_ids: Sequence[str] | None = None, timeout: float | None = None) -> list[GroupState]:
        """Wait until groups are closed.

        Args:
            group_ids: None: those that are open now.
            timeout: seconds; None: without end.

        Returns: the groups as they are then, those left out that the queue does not know; some are still open when
            the time was up.
        """
        deadline = time.monotonic() + timeout if timeout is not None else None
        ids = [group.group_id for group in self.groups()] if group_ids is None else list(group_ids)
        states: dict[str, GroupState] = {}
        while True:
            newest_id = self._newest_closed()
            self.queue.reap()
            is_open = [id_ for id_ in ids if id_ not in states or not states[id_].is_closed]
            states |= {group.group_id: group for group in self.groups(is_open)} if is_open else {}
            left = _LONGEST_BLOCK_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0 or all(state.is_closed for state in states.values()):
                return [states[id_] for id_ in ids if id_ in states]
            self._block(newest_id, min(left, _LONGEST_BLOCK_SECONDS))

    def groups(self, group_ids: Sequence[str] | None = None) -> list[GroupState]:
        """Those groups that are known, or the oldest 1,000 open ones."""
        scripts = self.queue.scripts
        if group_ids is None:
            return scripts.groups([], _MOST_GROUPS)
        parts = [group_ids[at : at + _MOST_GROUPS] for at in range(0, len(group_ids), _MOST_GROUPS)]
        return [group for part in parts for group in scripts.groups(part, _MOST_GROUPS)]

    def rollouts(self, group_ids: Sequence[str] | None = None) -> list[RolloutState]:
        """Rollouts of those groups, or of the oldest 1,000 open ones."""
        return self.queue.scripts.rollouts(list(group_ids or ()), _MOST_GROUPS) if group_ids != [] else []

    def dead(self, limit: int = 100) -> list[RolloutState]:
        """Rollouts that were given up, with their errors, newest first."""
        return self.queue.scripts.dead(limit)

    def workers(self) -> list[WorkerState]:
        """Workers that were seen in the last day, longest silent first."""
        return self.queue.scripts.workers()

    def stats(self) -> QueueStats:
        """How much is queued, delayed, leased and dead."""
        return self.queue.scripts.stats()

    def cancel(self, group_ids: Sequence[str]) -> int:
        """Cancel the rollouts of these groups that are not final; how many. The groups close with what they have."""
        return self.queue.cancel(group_ids)

    def pause(self, run: str) -> None:
        """Give out no rollout of the run until it is resumed; running ones go on."""
        self.queue.pause(run)

    def resume(self, run: str) -> None:
        """Give out rollouts of the run again."""
        self.queue.resume(run)

    def _newest_closed(self) -> str:
        found = cast("list[tuple[bytes, object]]", self.queue.redis.xrevrange(self._closed, count=1))
        return found[0][0].decode() if found else "0-0"

    def _block(self, newest_id: str, seconds: float) -> None:
        self.queue.redis.xread({self._closed: newest_id}, count=1, block=max(1, round(seconds * 1000)))

    @property
    def _closed(self) -> str:
        return self.queue.keys.queue("closed")
