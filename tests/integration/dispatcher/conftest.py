"""Fixtures of the dispatcher: a queue, and short names for events of its rollouts."""

import json

import pytest

from agent_layer.dispatcher import Dispatcher, Lease, Report
from agent_layer.schema.task import Task

from ...queues import Queue


class QueueHarness:
    """A queue and its dispatcher, with the moves that tests make in one word each."""

    def __init__(self, redis, keys, settings):
        self.redis, self.keys = redis, keys
        self.queue = Queue(redis, keys, settings, jitter=lambda: 1.0)
        self.dispatcher = Dispatcher(redis, settings)

    def add(self, name="t", run="r", **fields):
        (group_id,) = self.queue.add([Task(id=name, run=run, **fields)])
        return group_id

    def claim(self, num=1, worker="w", **options) -> list[Lease]:
        return self.queue.claim(worker, num, **options)

    def claimed(self, num, **options):
        """Tasks of the next leases, in their order."""
        return [lease.task.id for lease in self.claim(num, **options)]

    def end(self, lease, ending="completed", **fields):
        """Report, and wait out any back-off."""
        error = self.queue.settle([Report(lease=lease, ending=ending, **({"error": "infra: away"} | fields))])[0]
        for rollout_id in self.redis.zrange(self.keys.queue("delayed"), 0, -1):
            self.redis.zadd(self.keys.queue("delayed"), {rollout_id: 0})
        return error

    def lapse(self, lease):
        self.redis.zadd(self.keys.queue("leases"), {lease.rollout_id: 0})
        self.queue.reap()

    def group(self, group_id):
        return self.dispatcher.groups([group_id])[0]

    def statuses(self, group_id):
        return [one.status for one in self.dispatcher.rollouts([group_id])]

    def run(self, name="r"):
        return self.dispatcher.runs([name])[0]

    def decisions(self, kind):
        found = [
            {k.decode(): v.decode() for k, v in fields.items()} for _, fields in self.redis.xrange(self.keys.outbox)
        ]
        return [entry for entry in found if entry["kind"] == kind]

    def give_up(self, name="t", run="r", errors=("infra: away",), **fields):
        """Make the only rollout of a task a dead letter with these errors; return its id."""
        group_id = self.add(name, run=run, **fields)
        for error in errors[:-1]:
            self.end(self.claim(run=run)[0], "retry", error=error)
        self.end(self.claim(run=run)[0], "dead", error=errors[-1])
        return f"{group_id}.0"


@pytest.fixture
def harness(redis, keys, settings):
    return QueueHarness(redis, keys, settings)


@pytest.fixture
def read_rows(agent_layer):
    """``read_rows("groups")``: the command's JSON output, decoded."""

    def run(*arguments: str) -> list[dict[str, object]]:
        status, out, err = agent_layer(*arguments, "--format", "jsonl")
        assert (status, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]

    return run
