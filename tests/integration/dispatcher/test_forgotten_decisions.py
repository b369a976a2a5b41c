"""A queue that forgets what it decided, at random: index, groups and objects agree in the end.

Its Redis forgets back to an earlier moment, or is emptied; the index is whole again before anything else is decided,
as after ``restore_index``. The servers that really forget are in faults/test_forgetful_redis.py.
"""

import random
from collections import Counter

import pytest

from agent_layer.dispatcher import LEASE_SCRIPTS, SUBMIT_SCRIPTS, Report
from agent_layer.infra.objects.filesystem import open_objects
from agent_layer.schema import Accepted, Group, Task, decode, encode, new_id
from agent_layer.shipper.direct import DirectDestination
from agent_layer.store import open_store

from ...builders import attempt
from ...queues import Queue
from ...stored import stored_records


class Line:
    """Workers, gateway and shipper of one group, move by move, over a queue that forgets."""

    def __init__(self, redis, keys, settings, chance, task):
        self.redis, self.keys, self.chance, self.task = redis, keys, chance, task
        never = {"retry_base_seconds": 0.0, "stop_failure_rate": 1.0, "max_attempts": 9}
        self.queue = Queue(redis, keys, settings.model_copy(update=never))
        self.destination = DirectDestination(keys, redis, open_objects(settings))
        self.store = open_store(settings)
        self.leases, self.copies, self.numbers = [], [{}], set()

    def submit(self):
        (self.group_id,) = self.queue.dispatcher.submit([self.task])

    def claim(self):
        for lease in self.queue.claim("w", self.chance.choice([1, 1, 2, 4])):
            if lease.trajectory_id in self.numbers:  # the gateway refuses the number: test_fences.py
                self.queue.release(lease)
            else:
                self.leases.append(lease)

    def accept(self):
        """Record an attempt, as the gateway does, and report it."""
        lease, is_usable = self.leases.pop(self.chance.randrange(len(self.leases))), self.chance.random() < 0.8
        self.numbers.add(lease.trajectory_id)
        records = attempt(lease.trajectory_id, score=1.0 if is_usable else None, group_id=lease.group_id)
        self.destination.store(new_id(), [encode(one) for one in records if not isinstance(one, Accepted)])
        self.queue.settle([Report(lease=lease, ending="completed", usable=is_usable)])

    def end(self, ending):
        lease = self.leases.pop(self.chance.randrange(len(self.leases)))
        self.queue.settle([Report(lease=lease, ending=ending, error="infra: away")])

    def lapse(self):
        leases = self.keys.queue("leases")
        for rollout_id in self.redis.zrange(leases, 0, -1):
            self.redis.zadd(leases, {rollout_id: 0})
        self.queue.reap()

    def ship(self):
        self.destination.ship_decisions()

    def remember(self):
        """Keep a copy of what a server may come back with."""
        names = [*self.redis.scan_iter(match=self.keys.queue("*")), *self.redis.scan_iter(match=f"{self.keys.outbox}*")]
        self.copies.append({name: self.redis.dump(name) for name in names})

    def forget(self):
        """Come back with an earlier copy; what happened after it is no moment to come back to."""
        del self.copies[self.chance.randrange(len(self.copies)) + 1 :]
        for pattern in (self.keys.queue("*"), f"{self.keys.outbox}*"):
            for name in self.redis.scan_iter(match=pattern):
                self.redis.delete(name)
        for name, content in self.copies[-1].items():
            self.redis.restore(name, 0, content)
        self.redis.hset(self.keys.queue("server"), mapping=dict.fromkeys(("change", "restored"), new_id()))
        self.submit()  # as a trainer does

    def step(self):
        moves = [self.ship, self.claim, self.claim, self.remember]
        if self.leases:
            moves += [self.accept, self.accept, lambda: self.end("release"), lambda: self.end("retry")]
        if self.chance.random() < 0.2:
            moves += [self.forget, self.lapse]
        self.chance.choice(moves)()

    def states(self):
        """What the queue shows of the group; an emptied one does not take a group whose record is stored."""
        return self.queue.dispatcher.groups([self.group_id])

    def finish(self):
        """Go on until the group has closed and is stored."""
        while not all(one.is_closed for one in self.states()):
            self.lapse()
            self.claim()
            while self.leases:
                self.accept()
        self.ship()


SHAPES = {
    "surplus": {"group_size": 2, "launch": 4},
    "refill": {"group_size": 3, "partial": "refill"},
    "whole": {"group_size": 3},
    "drop": {"group_size": 3, "partial": "drop"},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", [pytest.param(one, marks=pytest.mark.long if one >= 3 else []) for one in range(150)])
def test_whatever_a_queue_forgets_its_decisions_agree(redis, keys, settings, monkeypatch, seed, shape):
    chance = random.Random(f"{shape} {seed}")
    budget = chance.choice([150, 2])
    for script in {*LEASE_SCRIPTS, *SUBMIT_SCRIPTS}:
        monkeypatch.setitem(script.__dict__, "text", script.text.replace("budget = 150", f"budget = {budget}"))
    line = Line(redis, keys, settings, chance, Task(id="t", run="r", **SHAPES[shape]))
    line.submit()

    for _ in range(40):
        line.step()
    is_cancelled = chance.random() < 0.2
    if is_cancelled:
        line.queue.dispatcher.cancel([line.group_id])
    line.finish()

    records = [decode(one) for one in stored_records(line.store)]
    accepted = {one.trajectory_id for one in records if isinstance(one, Accepted)}
    (group,) = {encode(one): one for one in records if isinstance(one, Group)}.values()
    assert max(Counter(one.rpartition("-")[0] for one in accepted).values(), default=0) <= 1
    if group.fill != "dropped":
        assert set(group.trajectory_ids) == accepted
        assert all(one.num_accepted == len(group.trajectory_ids) for one in line.states())
    assert line.store.admin.check().findings == []
    assert list(redis.scan_iter(match=keys.accepted("*"))) == []


def test_decisions_that_follow_forgotten_ones_are_another_segment(redis, keys, settings):
    """Else it would take the place of the first segment, and the decision that is only there."""
    line = Line(redis, keys, settings, random.Random(0), Task(id="t", run="r", group_size=3))
    line.submit()
    while len(line.leases) < 3:
        line.claim()
    line.accept()
    line.remember()
    line.accept()
    line.ship()
    line.copies = line.copies[-1:]
    line.forget()
    line.accept()
    line.ship()

    accepted = [one for one in map(decode, stored_records(line.store)) if isinstance(one, Accepted)]
    assert len({one.trajectory_id for one in accepted}) == 3
