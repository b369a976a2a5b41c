"""This file holds the queue: tasks in, leases out, one accepted attempt for each rollout.

At-least-once execution, exactly-once acceptance: a rollout may be run more than once, but every change carries the
token of a lease, and only the lease that holds the rollout changes it. The server's clock alone decides when a lease
lapses. Retries keep the rollout's place in the order of asking.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from redis import Redis

from agent_layer.dispatcher.records import Beat, Ending, Lease, Report
from agent_layer.dispatcher.scripts import Refusal, Scripts
from agent_layer.errors import BackPressureError, BadInputError, LeaseLostError
from agent_layer.schema.ids import group_id_of
from agent_layer.schema.rollout import Cause, Outcome
from agent_layer.schema.task import Task
from agent_layer.settings import Settings
from agent_layer.store.keys import Keys

__all__ = ["Queue"]

_ROWS_PER_CALL = 256
"""Rollouts that one script call adds, so that no call holds up the server for long."""
_LONGEST_BLOCK_SECONDS = 1.0
"""A wait is cut into blocks of this length, well below any socket time limit."""
_LARGEST_EXPONENT = 6
"""A back-off is never longer than 2 to this many times the first."""
_ACCEPTING: dict[str, Ending] = {"completed": "completed", "truncated": "truncated"}


class Queue:
    """What workers and submitters do with the tasks of one namespace. Threads may share it."""

    def __init__(
        self, redis: Redis, keys: Keys, settings: Settings, *, jitter: Callable[[], float] = random.random
    ) -> None:
        self.redis = redis
        self.keys = keys
        self.settings = settings
        self.scripts = Scripts(redis, keys)
        self._jitter = jitter

    def add(self, tasks: Iterable[Task], round_index: int = 0) -> list[str]:
        """Queue one group of rollouts for each task.

        The same task of the same run in the same round is the same group, queued once however often it is added.

        Returns: group ids in order of the tasks.
        Raises: BackPressureError: the queue has no room; what fitted before is queued, and adding again goes on.
        """
        groups = [(group_id_of(task.run, task.id, round_index), task) for task in tasks]
        for batch in _batches(groups):
            added = self.scripts.add(batch, self.settings.max_queued_rollouts)
            if isinstance(added, int):
                raise BackPressureError(
                    f"queue of namespace {self.settings.namespace!r}: expected room for"
                    f" {sum(task.group_size for _, task in batch)} more rollouts below max_queued_rollouts"
                    f" ({self.settings.max_queued_rollouts}), found {added} queued; submit again when some have run"
                )
        return [group_id for group_id, _ in groups]

    def claim(
        self, worker: str, num: int, capabilities: Iterable[str] = (), *, run: str = "", wait_seconds: float = 0.0
    ) -> list[Lease]:
        """Lease up to ``num`` rollouts, and wait for the first one if there is none.

        Args:
            worker: name under which the leases are shown.
            num: most leases to give.
            capabilities: what the worker can do; rollouts that need more are left to others.
            run: only rollouts of this run; empty: of any.
            wait_seconds: how long to wait while there is none.
        """
        deadline = time.monotonic() + wait_seconds
        offered = list(capabilities)
        while True:
            claim = self.scripts.claim(
                worker,
                num,
                offered,
                lease_seconds=self.settings.lease_seconds,
                max_attempts=self.settings.max_attempts,
                run=run,
            )
            left = deadline - time.monotonic()
            if claim.leases or left <= 0:
                return claim.leases
            self._wait(claim.wake_id, min(left, claim.due_seconds or left))

    def heartbeat(self, worker: str, about: bytes, leases: Sequence[tuple[Lease, str]]) -> list[Beat]:
        """Keep leases and show the worker.

        Args:
            worker: whose leases they are.
            about: what the worker says of itself, a JSON object.
            leases: [num_leases] with the rollout's status: running, scoring or sealing.

        Returns: [num_leases] what is to be done with each.
        """
        return self.scripts.heartbeat(worker, about, leases, self.settings.lease_seconds)

    def settle(self, reports: Sequence[Report]) -> list[LeaseLostError | None]:
        """End leases, many in one step; None where the report was taken.

        Saying the same again is fine; an error tells who holds the rollout instead, and the attempt counts for nothing.
        """
        delays = [self._delay(report) for report in reports]
        refusals = self.scripts.settle(reports, delays, self.settings.max_attempts)
        return [refusal and _lease_lost(one.lease, refusal) for one, refusal in zip(reports, refusals, strict=True)]

    def commit(self, lease: Lease, outcome: Outcome) -> None:
        """Accept a sealed attempt, once and for all.

        Raises:
            LeaseLostError: somebody else holds the rollout, or it is decided.
            BadInputError: the outcome is not one that counts.
        """
        if outcome.status not in _ACCEPTING:
            raise BadInputError(
                f"rollout {lease.rollout_id}: expected an outcome completed or truncated, found {outcome.status!r};"
                " report it with fail()"
            )
        self._settle_one(Report(lease=lease, ending=_ACCEPTING[outcome.status]))

    def fail(self, lease: Lease, cause: Cause, error: str, *, retryable: bool = True) -> None:
        """Hand the rollout on after a back-off, or give it up when it failed too often or cannot succeed.

        Raises: LeaseLostError: somebody else holds the rollout, or it is decided.
        """
        self._settle_one(Report(lease=lease, ending="retry" if retryable else "dead", error=f"{cause}: {error}"))

    def release(self, lease: Lease, error: str = "infra: the worker stopped") -> None:
        """Hand the rollout on at once; this attempt does not count as a failure.

        Raises: LeaseLostError: somebody else holds the rollout, or it is decided.
        """
        self._settle_one(Report(lease=lease, ending="release", error=error))

    def reap(self) -> int:
        """Take back lapsed leases, as every claim does too; how many."""
        return self.scripts.reap(self.settings.max_attempts)

    def cancel(self, group_ids: Sequence[str]) -> int:
        """Cancel the rollouts of these groups that are not final; how many. Their groups close with what they have."""
        return self.scripts.cancel(group_ids)

    def pause(self, run: str) -> None:
        """Give out no rollout of the run until it is resumed; running ones go on."""
        self.redis.sadd(self.keys.queue("paused"), run)

    def resume(self, run: str) -> None:
        """Give out rollouts of the run again."""
        self.redis.srem(self.keys.queue("paused"), run)
        self.redis.xadd(self.keys.queue("wake"), {"run": run}, maxlen=64)

    def leave(self, worker: str) -> None:
        """Forget a worker that ends."""
        self.redis.zrem(self.keys.queue("workers"), worker)
        self.redis.hdel(self.keys.queue("worker"), worker)

    def _wait(self, wake_id: str, seconds: float) -> None:
        block_ms = max(1, round(min(seconds, _LONGEST_BLOCK_SECONDS) * 1000))
        self.redis.xread({self.keys.queue("wake"): wake_id}, count=1, block=block_ms)

    def _settle_one(self, report: Report) -> None:
        error = self.settle([report])[0]
        if error is not None:
            raise error

    def _delay(self, report: Report) -> float:
        """Exponential back-off with full jitter in its upper half; attempts count from 0."""
        if report.ending != "retry":
            return 0.0
        exponent = min(report.lease.attempt, _LARGEST_EXPONENT)
        return self.settings.retry_base_seconds * 2**exponent * (1 + self._jitter()) / 2


def _batches(groups: Sequence[tuple[str, Task]]) -> Iterator[list[tuple[str, Task]]]:
    batch: list[tuple[str, Task]] = []
    num_rollouts = 0
    for group_id, task in groups:
        if batch and num_rollouts + task.group_size > _ROWS_PER_CALL:
            yield batch
            batch, num_rollouts = [], 0
        batch.append((group_id, task))
        num_rollouts += task.group_size
    if batch:
        yield batch


def _lease_lost(lease: Lease, refusal: Refusal) -> LeaseLostError:
    subject = f"attempt {lease.trajectory_id}: expected to hold its rollout"
    match refusal.status:
        case "unknown":
            return LeaseLostError(f"{subject}, found no such rollout; it may have ended long ago, discard this attempt")
        case "completed" | "truncated" | "cancelled" | "dead":
            return LeaseLostError(f"{subject}, found it {refusal.status}; discard this attempt")
        case "queued":
            return LeaseLostError(f"{subject}, found it queued again; discard this attempt, it will be handed on")
        case _:
            return LeaseLostError(
                f"{subject}, found attempt {refusal.attempt} held by {refusal.worker!r};"
                " discard this attempt, it has been handed on"
            )
