"""One worker: it claims, renews its leases from a thread, appends records, waits until they are stored, and reports.

It sends some reports twice, and some in another worker's name.
"""

import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from asking import is_doomed, is_null
from book import Kind, Pen, Row
from redis.exceptions import RedisError

from agent_layer.dispatcher import Lease, Report, WorkerQueue
from agent_layer.dispatcher.models import HeldRollout, LeaseEnding
from agent_layer.errors import LeaseLostError
from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.keys import Keys
from agent_layer.recorder import open_recorder
from agent_layer.schema.rollout import AttemptStarted, Outcome
from agent_layer.settings import Settings

__all__ = ["Worker"]

_BATCH = 32
_STORED_SECONDS = 20.0
_ENDINGS: list[LeaseEnding] = ["completed", "truncated", "retry", "release"]
_ACCEPTING = ("completed", "truncated")
_ERRORS = {"retry": "infra: it rained", "release": "infra: the worker had enough", "dead": "user: doomed"}


class Heartbeat(threading.Thread):
    """Renews the held leases, and remembers which attempts must pause."""

    def __init__(self, queue: WorkerQueue, worker: str, pen: Pen) -> None:
        super().__init__(daemon=True)
        self._queue, self._worker, self._pen = queue, worker, pen
        self.held: list[Lease] = []
        self.pausing: set[str] = set()
        """Tokens."""
        self._never = threading.Event()

    def run(self) -> None:
        while not self._never.wait(self._queue.settings.heartbeat_seconds):
            held = self.held
            try:
                beats = self._queue.heartbeat(self._worker, b"{}", [(lease, "running") for lease in held]).leases
            except RedisError:
                continue
            answer = list(zip(held, beats, strict=True))
            self.pausing |= {lease.token for lease, beat in answer if beat == "pause"}
            self._pen.note("ends", [_row(one, beat) for one, beat in answer if beat in ("cancel", "lost")])


class Worker:
    """Works until the file ``stop`` exists, or until it is killed."""

    def __init__(self, settings: Settings, directory: Path, name: str, chance: random.Random) -> None:
        self._name, self._chance, self._run = name, chance, settings.run
        self._stop = directory / "stop"
        self._pen = Pen(directory, name)
        self._queue = WorkerQueue(open_redis(settings), Keys(settings.namespace), settings)
        self._recorder = open_recorder(settings)
        self._heartbeat = Heartbeat(self._queue, name, self._pen)
        self._kept: set[str] = set()
        """Tokens of leases that have a checkpoint."""

    def work(self) -> None:
        self._heartbeat.start()
        while not self._stop.exists():
            if leases := self._queue.claim(self._name, _BATCH, wait_seconds=0.5):
                self._heartbeat.held = leases
                self._pen.note("took", [_row(lease, sentence=lease.checkpoint or "") for lease in leases])
                self._do(leases)
                self._heartbeat.held = []
        self._recorder.close()

    def _do(self, leases: Sequence[Lease]) -> None:
        logs = {self._begin(leases)}
        self._kept |= {one.token for one in leases if one.checkpoint is not None}
        leases = [one for one in leases if self._chance.random() > 0.1 or self._keep(one)]
        time.sleep(self._chance.uniform(0.002, 0.04))
        reports = [report for one in leases if (report := self._end(one)) is not None]
        logs.add(self._record(reports))
        if self._chance.random() < 0.05:
            self._lie(reports)
        if not self._are_stored(logs):
            reports = [msgspec.structs.replace(one, ending="release", error=_ERRORS["release"]) for one in reports]
        self._pen.note("says", [_row(report.lease, report.ending) for report in reports])
        self._say(reports, "yes", "no")
        if self._chance.random() < 0.2:
            self._say(reports, "again-yes", "again-no")

    def _begin(self, leases: Sequence[Lease]) -> str:
        return self._recorder.append(
            *(
                AttemptStarted(
                    trajectory_id=lease.trajectory_id,
                    run=self._run,
                    rollout_id=lease.rollout_id,
                    attempt=lease.attempt,
                    group_id=lease.group_id,
                    task_id=lease.task.id,
                    started_at=time.time(),
                    worker=self._name,
                )
                for lease in leases
                if lease.checkpoint is None
            )
        )

    def _keep(self, lease: Lease) -> bool:
        """Note a checkpoint, from which another worker may resume; return whether the lease is valid."""
        self._kept.add(lease.token)
        name = f"{lease.trajectory_id}@{lease.token}"
        self._pen.note("keeps", [_row(lease, sentence=name)])
        try:
            self._queue.checkpoint(lease, name)
        except LeaseLostError as error:
            self._pen.note("no", [_row(lease, sentence=str(error))])
            return False
        return True

    def _end(self, lease: Lease) -> Report | None:
        """How an attempt ends, mostly at random; None when the lease is lost."""
        ending: LeaseEnding
        if is_doomed(lease.rollout_id):
            ending = "dead"
        elif lease.token in self._heartbeat.pausing:
            if not self._keep(lease):
                return None
            ending = "pause"
        else:
            (ending,) = self._chance.choices(_ENDINGS, [90, 6, 2, 2])
        usable = not is_null(lease.rollout_id, lease.attempt)
        return Report(lease=lease, ending=ending, error=_ERRORS.get(ending, ""), usable=usable)

    def _record(self, reports: Sequence[Report]) -> str:
        """Append the outcomes of attempts that end."""
        return self._recorder.append(
            *(
                Outcome(
                    trajectory_id=report.lease.trajectory_id,
                    run=self._run,
                    status=report.ending if report.ending in _ACCEPTING else "failed",
                    ended_at=time.time(),
                    cause=None if report.ending in _ACCEPTING else "infra",
                    num_calls=0,
                )
                for report in reports
                if report.ending not in ("pause", "release") or report.lease.token not in self._kept
            )
        )

    def _are_stored(self, logs: set[str]) -> bool:
        deadline = time.monotonic() + _STORED_SECONDS
        while not all(self._recorder.is_settled(log) for log in logs):
            if time.monotonic() > deadline:  # wait: a worker's own patience, by its wrong clock
                return False
            time.sleep(0.02)
        return True

    def _say(self, reports: Sequence[Report], taken: Kind, refused: Kind) -> None:
        answer = list(zip(reports, self._queue.settle(reports), strict=True))
        self._pen.note(taken, [_row(one.lease, one.ending) for one, refusal in answer if refusal is None])
        self._pen.note(refused, [_row(one.lease, one.ending, str(refusal)) for one, refusal in answer if refusal])

    def _lie(self, reports: Sequence[Report]) -> None:
        """Report each rollout as completed with the token of another one, or with none."""
        if len(reports) > 1:
            tokens = [one.lease.token for one in reports[1:]] + [""]
            foreign = [
                Report(lease=msgspec.structs.replace(one.lease, token=token), ending="completed")
                for one, token in zip(reports, tokens, strict=True)
            ]
            self._say(foreign, "foreign-yes", "foreign-no")


def _row(lease: HeldRollout, ending: str = "", sentence: str = "") -> Row:
    return lease.rollout_id, lease.attempt, lease.token, ending, sentence
