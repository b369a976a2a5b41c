"""Random failures of the deployment's processes until every group is closed."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from signal import Signals

from asking import RUN
from queue_deployment import QueueDeployment

from agent_layer.dispatcher import Dispatcher
from agent_layer.schema.task import Task

__all__ = ["Chaos"]

_REDIS_KILLED = "Redis killed and restarted"
_MAX_CALM_SECONDS = 4.0
"""While no group closes."""


@dataclass
class Chaos:
    """Kills and freezes; ``counts`` has the number of each."""

    deployment: QueueDeployment
    dispatcher: Dispatcher
    tasks: Sequence[Task]
    group_ids: Sequence[str]
    chance: random.Random
    num_redis_kills: int
    counts: Counter[str] = field(default_factory=Counter[str])
    frozen: dict[int, float] = field(default_factory=dict[int, float])
    """Frozen pids, and when each resumes."""
    cancelled: set[str] = field(default_factory=set[str])
    """Groups whose open rollouts were cancelled."""

    def cause_failures(self, limit_seconds: float) -> int:
        """Continue until every group is closed or the time is over; return the number of open groups."""
        deadline = time.monotonic() + limit_seconds
        kinds: dict[Callable[[], None], float] = {
            self.kill_a_worker: 10,
            self.freeze_a_worker: 2,
            self.kill_the_shipper: 0.5,
            self.cancel_a_group: 0.5,
            self.pause_the_run: 0.7,
            self.submit_again: 0.2,
        }
        num_left, waits_until = len(self.group_ids) + 1, 0.0
        while (num_open := self.num_open()) and time.monotonic() < deadline:  # wait: how long it rages
            time.sleep(self.chance.uniform(0.05, 0.4))
            self.thaw(time.monotonic())
            if num_open < len(self.group_ids) * (1 - (self.counts[_REDIS_KILLED] + 1) / (self.num_redis_kills + 1)):
                self.kill_redis()
            # on a busy machine, storms are rarer
            if num_open < num_left or time.monotonic() > waits_until:  # wait: the pace of the storms
                num_left, waits_until = num_open, time.monotonic() + _MAX_CALM_SECONDS
                self.chance.choices([*kinds], [*kinds.values()])[0]()
        self.thaw(float("inf"))
        return num_open

    def num_open(self) -> int:
        return self.dispatcher.stats().num_open_groups

    def thaw(self, now: float) -> None:
        for pid, until in [*self.frozen.items()]:
            if until <= now:
                self.deployment.send(pid, signal.SIGCONT)
                del self.frozen[pid]

    def kill_a_worker(self) -> None:
        if awake := [pid for pid in self.deployment.workers() if pid not in self.frozen]:
            self.deployment.send(self.chance.choice(awake), signal.SIGKILL)
            self.counts["workers killed"] += 1

    def freeze_a_worker(self) -> None:
        """Stop one for longer than its leases hold; then it is a zombie that reports late."""
        awake = [pid for pid in self.deployment.workers() if pid not in self.frozen]
        if awake and len(self.frozen) < 3:
            pid = self.chance.choice(awake)
            self.deployment.send(pid, Signals.SIGSTOP)
            self.frozen[pid] = time.monotonic() + self.deployment.settings.lease_seconds + self.chance.uniform(0.5, 2.0)
            self.counts["workers frozen beyond their leases"] += 1

    def kill_the_shipper(self) -> None:
        if pid := self.deployment.shipper():
            self.deployment.send(pid, signal.SIGKILL)
            self.counts["shippers killed"] += 1

    def kill_redis(self) -> None:
        self.deployment.kill("redis")
        time.sleep(self.chance.uniform(0.0, 0.5))
        self.deployment.start_redis()
        self.counts[_REDIS_KILLED] += 1

    def cancel_a_group(self) -> None:
        group_id = self.chance.choice(self.group_ids)
        self.cancelled.add(group_id)
        self.counts["groups cancelled"] += 1
        self.dispatcher.cancel([group_id])

    def pause_the_run(self) -> None:
        """Pause running attempts; they continue under another lease."""
        self.dispatcher.pause(RUN, running=True, why="a failure on purpose")
        time.sleep(self.chance.uniform(0.3, 1.0))
        self.dispatcher.resume(RUN)
        self.counts["pauses of the run"] += 1

    def submit_again(self) -> None:
        """Submit all tasks again; the dispatcher queues no existing group twice."""
        self.dispatcher.submit(self.tasks)
        self.counts["times all was submitted again"] += 1
