"""20,000 rollouts while workers, Redis and the shipper are killed: each ends once, none is lost, groups are whole."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from agent_layer.dispatcher import Report, connect
from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.embedded import acquire_server
from agent_layer.infra.redis.keys import Keys
from agent_layer.schema.task import Task
from agent_layer.settings import Settings

from ..queues import Queue
from ..waiting import run, scaled

CHAOS = Path(__file__).parent / "dispatch"
NUM_TASKS, GROUP_SIZE = 2500, 8
NUM_SURPLUS = NUM_TASKS // 10 * 3
"""A tenth of the tasks launches two more than it needs, another one; see asking.py."""


@pytest.mark.timeout(1800)
def test_every_rollout_ends_once_and_every_group_is_whole(tmp_path):
    command = [sys.executable, str(CHAOS), str(tmp_path), f"--tasks={NUM_TASKS}", "--seconds=240"]
    chaos = run(command, 1200)

    print(chaos.stdout)  # noqa: T201  # the counts, for who looks
    assert chaos.returncode == 0, chaos.stdout[-6000:] + chaos.stderr[-4000:]
    lines = chaos.stdout.splitlines()[:-1]
    counts = {what: int(number) for number, what in (line.split(maxsplit=1) for line in lines)}
    ended = sum(counts[f"rollouts {end}"] for end in ("completed", "truncated", "cancelled", "dead"))
    assert ended >= NUM_TASKS * GROUP_SIZE + NUM_SURPLUS
    assert counts["accepted in the store"] == counts["rollouts completed"] + counts["rollouts truncated"]
    assert sum(counts[f"groups {fill}"] for fill in ("whole", "short", "dropped")) == NUM_TASKS
    assert counts["groups delivered"] == NUM_TASKS
    assert counts["Redis killed and restarted"] == 2
    happened = ["workers killed", "attempts lost", "book: no", "book: ends", "book: foreign-no", "book: again-yes"]
    happened += ["attempts that went on under another lease", "rollouts launched to fill a group up"]
    assert {what: counts[what] for what in happened if counts[what] <= 20} == {}


@pytest.fixture
def queue(settings, redis, keys):
    """Of a namespace that stops a run when more than half of its newest eight attempts failed."""
    return Queue(redis, keys, settings.model_copy(update={"stop_failure_window": 8, "retry_base_seconds": 0.001}))


def test_a_run_of_which_too_many_attempts_fail_is_stopped_and_says_why(settings, queue):
    dispatcher = connect(settings)
    queue.add([Task(id="broken", run="broken", group_size=16), Task(id="sound", run="sound", group_size=4)])
    ends = iter([None] * 4 + ["no route to the sandbox"] * 5)
    for error, lease in zip(ends, queue.claim("w", 16, run="broken"), strict=False):
        queue.settle([Report(lease=lease, ending="retry" if error else "completed", error=f"infra: {error}")])

    (broken,) = dispatcher.runs(["broken"])
    assert broken.paused == (
        "5 of the newest 8 attempts failed, more than stop_failure_rate (0.5) allows; the last: infra: no route to the"
        " sandbox"
    )
    assert broken.causes == [("infra", 5)]
    assert queue.claim("w", 16, run="broken", wait_seconds=0.2) == []
    assert len(queue.claim("w", 16)) == 4, "other runs go on"
    dispatcher.resume("broken")
    assert len(queue.claim("w", 16, run="broken")) == 5


def test_a_lease_that_was_handed_on_by_a_claim_lapses_like_any_other(queue):
    quick = Queue(queue.redis, queue.keys, queue.settings.model_copy(update={"lease_seconds": 0.2}))
    queue.add([Task(id="t", run="r")])

    holders = [quick.claim(worker, 1, wait_seconds=scaled(5)) for worker in ("one", "two", "three")]

    assert [lease.attempt for leases in holders for lease in leases] == [0, 1, 2]


class ForgetfulRedis:
    """The server of a directory; it can be killed together with what it wrote last."""

    def __init__(self, directory: Path) -> None:
        self.settings = Settings(dir=directory, lease_seconds=30.0)
        self._file = directory / "redis" / "appendonly.aof"
        acquire_server(self.settings)

    def open_queue(self) -> Queue:
        return Queue(open_redis(self.settings), Keys(self.settings.namespace), self.settings)

    def note(self) -> None:
        """Remember what is on disk now."""
        shutil.copy(self._file, self._file.with_suffix(".copy"))

    def forget(self) -> None:
        """Kill it with -9, as if what was written since the note had not reached the disk, and start it again."""
        with open_redis(self.settings) as redis:
            os.kill(int(redis.info("server")["process_id"]), signal.SIGKILL)
        shutil.copy(self._file.with_suffix(".copy"), self._file)
        acquire_server(self.settings)


def test_a_lease_that_redis_forgot_is_worth_nothing(tmp_path):
    redis = ForgetfulRedis(tmp_path)
    queue = redis.open_queue()
    queue.add([Task(id="t", run="r")])
    redis.note()
    (forgotten,) = queue.claim("one", 1)
    redis.forget()
    queue = redis.open_queue()
    (lease,) = queue.claim("other", 1)

    (refusal,) = queue.settle([Report(lease=forgotten, ending="completed")])

    assert "held by 'other'" in str(refusal)
    assert queue.settle([Report(lease=lease, ending="completed")]) == [None]
