"""The queue as a worker uses it: claim leases, keep them by heartbeats, report how they ended.

At-least-once execution, exactly-once acceptance: a rollout may run more than once, but every change carries the token
of a lease, and only the lease that holds the rollout changes it. The shared clock alone decides when a lease lapses.
Retries keep the rollout's place in the queue.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias, cast

import msgspec
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError, TimeoutError as RedisTimeoutError

from agent_layer.dispatcher.models import HeartbeatAnswer, HeldRollout, Lease, LeaseEnding, Report
from agent_layer.dispatcher.scripts import ClaimTerms, Refusal, Scripts
from agent_layer.errors import BadInputError, CorruptRecordError, LeaseLostError
from agent_layer.infra import Keys, batched
from agent_layer.recorder import KeyScrubber
from agent_layer.schema import Cause, Outcome, Task, decode, new_id
from agent_layer.settings import Settings

_MAX_DOUBLINGS = 6
_ROWS_PER_CALL = 256
"""Rollouts that one script call leases or keeps, so that no call holds up the server for long."""
_REPORTS_PER_CALL = 64
"""Reports that one script call settles; each is a decision of its own."""
_MAX_PASSES = 16
"""Attempts at an unreadable task that count as no failure, ``lease_seconds`` apart: another worker may be newer."""
_MAX_BLOCK_SECONDS = 1.0
"""A wait is cut into blocks of this length, well below any socket time limit."""
_MIN_BLOCK_SECONDS = 0.002
"""Servers before Redis 7 round down to milliseconds, and 0 blocks for ever."""
_Entries: TypeAlias = tuple[bytes, list[tuple[bytes, object]]]
"""Name of a stream, and entries of it with their ids."""
_log = logging.getLogger(__name__)
REFUSED = "access refused: "
"""How the reason of a pause begins that a worker made because a server refuses it."""
_ACCEPTING: dict[str, LeaseEnding] = {"completed": "completed", "truncated": "truncated"}


class WorkerQueue:
    """What a worker does with the queue of one namespace. Threads may share it."""

    def __init__(
        self,
        redis: Redis,
        keys: Keys,
        settings: Settings,
        *,
        jitter: Callable[[], float] = random.random,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.redis = redis
        self.keys = keys
        self.settings = settings
        self._scripts = Scripts(redis, keys, settings, monotonic=monotonic)
        self._jitter = jitter
        self._scrubber = KeyScrubber(settings.secrets)

    def claim(  # what it may lease, and how it waits
        self,
        worker: str,
        num: int,
        capabilities: Iterable[str] = (),
        *,
        run: str = "",
        wait_seconds: float = 0.0,
        on_lack: Callable[[list[str]], object] | None = None,
    ) -> list[Lease]:
        """Lease up to ``num`` rollouts, and wait for the first one if there is none.

        Args:
            worker: name that the leases show.
            num: most leases to return; above 256, 256.
            capabilities: what the worker can do; rollouts that need more are left to other workers.
            run: only rollouts of this run; empty: of any run.
            wait_seconds: longest wait for the first one.
            on_lack: called with the needs of sandboxes that keep this worker from rollouts which wait; then the call
                waits no longer.
        """
        deadline = time.monotonic() + wait_seconds
        offered = list(capabilities)
        seconds, waiter = self.settings.lease_seconds, new_id() if wait_seconds > 0 else ""
        claim_now = partial(
            self._scripts.claim, worker, min(num, _ROWS_PER_CALL), offered, lease_seconds=seconds, run=run
        )
        while True:
            block_seconds = min(max(0.0, deadline - time.monotonic()), _MAX_BLOCK_SECONDS)
            terms = ClaimTerms(waiter, block_seconds, on_lack is not None)
            claim = claim_now(terms=terms)
            while claim.is_due:
                self._scripts.reap()
                claim = claim_now(terms=terms._replace(is_reaped=True))
            self._pass_over(claim.unreadable)
            if claim.lacking and on_lack is not None:
                on_lack(claim.lacking)
                return claim.leases
            if claim.leases or block_seconds == 0:
                return claim.leases
            seconds = max(_MIN_BLOCK_SECONDS, min(block_seconds, claim.due_seconds or block_seconds))
            self.redis.blpop([self.keys.queue("wake", waiter)], timeout=seconds)

    def peek(self, num: int, capabilities: Iterable[str] = (), *, run: str = "") -> list[Task]:
        """Return the tasks of the rollouts that a worker is likely to lease next, without leasing them.

        Args:
            num: most tasks to return.
            capabilities: what the worker can do.
            run: only rollouts of this run; empty: of any run.
        """
        found = self._scripts.upcoming(min(num, _ROWS_PER_CALL), capabilities, run)
        tasks: list[Task] = []
        for encoded in found:
            with suppress(CorruptRecordError):  # a claim reports it
                tasks.append(cast("Task", decode(encoded)))
        return tasks

    def heartbeat(self, worker: str, about: bytes, leases: Sequence[tuple[Lease, str]]) -> HeartbeatAnswer:
        """Renew leases and show the worker. Many leases take several calls, so that Redis serves others in between.

        Args:
            worker: holder of the leases.
            about: what the worker reports about itself, a JSON object.
            leases: [num_leases] with the rollout's status: running, scoring or sealing.

        Returns: what to do with each lease, and whether the worker drains.
        """
        pages = list(batched(leases, _ROWS_PER_CALL)) or [[]]
        answers = [self._scripts.heartbeat(worker, about, page, self.settings.lease_seconds) for page in pages]
        return HeartbeatAnswer(
            is_draining=any(answer.is_draining for answer in answers),
            leases=[lease for answer in answers for lease in answer.leases],
        )

    def listen(self, worker: str, after_id: str, seconds: float) -> str:
        """Wait until there is news for the worker, such as a cancelled rollout; its next heartbeat returns the news.

        Args:
            worker: name of the waiting worker.
            after_id: what the call before returned; '0-0' at first.
            seconds: longest wait.

        Returns: the id to pass next; ``after_id`` itself when there was no news.
        """
        names = (self.keys.queue("calls", worker), self.keys.queue("calls"))
        own, _, of_all = after_id.partition(" ")
        newest = dict(zip(names, (own, of_all or own), strict=True))
        block_ms = max(1, round(min(seconds, _MAX_BLOCK_SECONDS) * 1000))
        entries = cast("list[_Entries]", self.redis.xread({**newest}, block=block_ms))
        newest |= {name.decode(): found[-1][0].decode() for name, found in entries}
        return " ".join(newest.values()) if entries else after_id

    def checkpoint(self, lease: Lease, name: str) -> str | None:
        """Record where the attempt may go on under another lease.

        Returns: the name that this one replaces, for its owner to remove; None where it is the first.
        Raises: LeaseLostError: another lease holds the rollout, or it is final.
        """
        answer = self._scripts.checkpoint(lease, name)
        if isinstance(answer, Refusal):
            raise _lease_lost(lease, answer)
        return answer

    def settle(self, reports: Sequence[Report]) -> list[LeaseLostError | None]:
        """End leases, up to 64 in one step; return None where the report was accepted.

        The same report may come twice. An error names the lease that holds the rollout; the refused attempt is void.
        Errors of agents are queued without keys of operators and rollouts.
        """
        reports = [self.mask_keys(report) for report in reports]
        return [error for page in batched(reports, _REPORTS_PER_CALL) for error in self._settle(page)]

    def mask_keys(self, report: Report) -> Report:
        """Return the report as logs and the queue may show it."""
        masked = self._scrubber.scrub_text(report.error) if report.error else ""
        return report if masked == report.error else msgspec.structs.replace(report, error=masked)

    def commit(self, lease: Lease, outcome: Outcome) -> None:
        """Accept a sealed attempt, once and for all.

        Raises:
            LeaseLostError: another lease holds the rollout, or it is final.
            BadInputError: the outcome is neither completed nor truncated.
        """
        if outcome.status not in _ACCEPTING:
            raise BadInputError(
                f"rollout {lease.rollout_id}: expected an outcome completed or truncated, found {outcome.status!r};"
                " report it with fail()"
            )
        self._settle_one(Report(lease=lease, ending=_ACCEPTING[outcome.status]))

    def fail(self, lease: Lease, cause: Cause, error: str, *, retryable: bool = True) -> None:
        """Queue the rollout again after a back-off, or make it dead when it failed too often or cannot succeed.

        Raises: LeaseLostError: another lease holds the rollout, or it is final.
        """
        ending: LeaseEnding = "retry" if retryable else "dead"
        self._settle_one(Report(lease=lease, ending=ending, cause=cause, error=f"{cause}: {error}"))

    def release(self, lease: Lease, error: str = "infra: the worker stopped") -> None:
        """Queue the rollout again at once; this attempt does not count as a failure.

        Raises: LeaseLostError: another lease holds the rollout, or it is final.
        """
        self._settle_one(Report(lease=lease, ending="release", error=error))

    def pause_refused(self, run: str, why: str) -> None:
        """Lease nothing more of a run whose attempts a server refuses, unless it is paused already.

        Args:
            run: of the refused attempt.
            why: sentence that begins with ``REFUSED``; ``resume_refused`` ends the pauses of this reason.
        """
        self._scripts.pause(run, why, leased_too=False, if_it_goes=True)

    def resume_refused(self, begin: str) -> list[str]:
        """Resume the runs that are paused for a reason that begins so; return their names."""
        paused = cast("dict[bytes, bytes]", self.redis.hgetall(self.keys.queue("paused_runs")))
        found = {run.decode(): why.decode() for run, why in paused.items() if why.decode().startswith(begin)}
        return [run for run, why in found.items() if self._scripts.resume(run, why)]

    def reap(self) -> int:
        """Take back lapsed leases, as each claim does where some are due; return how many."""
        return self._scripts.reap()

    def leave(self, worker: str) -> None:
        """Forget a worker that exits."""
        queue = self.keys.queue
        self.redis.zrem(queue("workers"), worker)
        self.redis.hdel(queue("worker"), worker)
        self.redis.hdel(queue("claims"), worker)
        self.redis.srem(queue("draining"), worker)
        self.redis.unlink(queue("calls", worker))

    def _pass_over(self, unreadable: Sequence[tuple[HeldRollout, str]]) -> None:
        """Leave tasks of a later version to newer workers; a task that no worker can read fails in the end."""
        reports: list[Report] = []
        for held, quoting in unreadable:
            why = self._scrubber.scrub_text(quoting)
            _log.warning("task cannot be read by this version rollout=%s error=%s", held.rollout_id, why)
            ending: LeaseEnding = "release" if held.checkpoint or held.attempt < _MAX_PASSES else "retry"
            reports.append(Report(lease=held, ending=ending, error=f"infra: this version cannot read the task: {why}"))
        with suppress(RedisConnectionError, RedisTimeoutError):  # the leases lapse by themselves
            for page in batched(reports, _REPORTS_PER_CALL):
                self._scripts.settle(page, [self.settings.lease_seconds] * len(page))

    def _settle(self, reports: Sequence[Report]) -> Iterator[LeaseLostError | None]:
        refusals = self._scripts.settle(reports, [self._delay(report) for report in reports])
        for report, refusal in zip(reports, refusals, strict=True):
            yield refusal and _lease_lost(report.lease, refusal)

    def _settle_one(self, report: Report) -> None:
        error = self.settle([report])[0]
        if error is not None:
            raise error

    def _delay(self, report: Report) -> float:
        """Return seconds before the rollout may be claimed again, doubled by each earlier attempt, however it ended."""
        if report.ending != "retry":
            return 0.0
        return retry_delay(self.settings.retry_base_seconds, report.lease.attempt, self._jitter())


def retry_delay(base_seconds: float, num_failed: int, jitter: float) -> float:
    """Return a back-off that doubles with each failure, up to 64 times the base, drawn from its upper half.

    Args:
        base_seconds: the longest after the first failure.
        num_failed: failures before this one.
        jitter: from 0 to 1, drawn by the caller.

    Returns: seconds.
    """
    return base_seconds * 2 ** min(num_failed, _MAX_DOUBLINGS) * (1 + jitter) / 2


def _lease_lost(lease: HeldRollout, refusal: Refusal) -> LeaseLostError:
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
