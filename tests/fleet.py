"""A made-up fleet for pictures: two runs, workers with their leases, an engine that is behind, failures."""

import json
import random
import time
from typing import Final

from agent_layer.dispatcher import Report
from agent_layer.schema import Task
from agent_layer.schema.rollout import AttemptStarted, Outcome
from agent_layer.settings import Settings
from agent_layer.store import Store

from .faults import RUN, Worker, make_run
from .queues import Queue
from .stored import write_segment

BESIDE: Final = "larger-groups"
_ERRORS: Final = (
    ("infra", "failed", "sandbox: no box was ready within 30 s"),
    ("infra", "failed", "engine http://10.0.0.12:8000: expected an answer, found status 503"),
    ("verifier", "failed", "scorer tests: the hidden tests did not end within 60 s"),
    ("policy", "truncated", "limit turns: expected at most 12, found 13"),
)
_NUM_FAILED: Final = 37


def make_fleet(settings: Settings) -> tuple[Store, list[Worker]]:
    """Write it into the store of these settings; return the store, and the workers that must be kept alive."""
    store = make_run("stale-engine", settings, seed=2)
    make_run("healthy", settings, seed=6, run=BESIDE, has_engines=False)
    _fail(store)
    queue = Queue(store.redis, store.keys, settings)
    queue.add(Task(id=f"sum-{at}", run=RUN, task_type="sums", input="?", group_size=8) for at in range(4))
    queue.add(Task(id=f"item-{at}", run=BESIDE, task_type="sums", input="?", group_size=3) for at in range(4))
    queue.add(Task(id=f"wide-{at}", run=BESIDE, task_type="sums", input="?", needs=["gpu"]) for at in range(3))
    for worker in ("worker-1", "worker-2", "worker-3"):
        queue.heartbeat(worker, b"{}", [])
    for at, lease in enumerate(queue.claim("worker-1", 12)):
        is_lost = at % 4 == 0
        ending, error = ("dead", f"infra: {_ERRORS[0][2]}") if is_lost else ("completed", None)
        queue.settle([Report(lease=lease, ending=ending, error=error)])
    held = {"worker-1": queue.claim("worker-1", 4), "worker-2": queue.claim("worker-2", 2), "worker-3": []}
    queue.dispatcher.drain(["worker-3"])
    return store, [
        Worker(name, json.dumps({"slots": 4, "held": len(leases), "agent": "agents:adder"}).encode(), leases)
        for name, leases in held.items()
    ]


def _fail(store: Store) -> None:
    """Store attempts that failed."""
    dice, now = random.Random(5), time.time()
    for number in range(_NUM_FAILED):
        cause, status, error = dice.choices(_ERRORS, [12, 5, 3, 8])[0]
        own = {"trajectory_id": f"sum-{number % 4}.9{number:03d}.0-0", "run": RUN}
        began = now - 20.0 * number
        started = AttemptStarted(
            **own,
            rollout_id=own["trajectory_id"][:-2],
            attempt=0,
            task_id=f"sum-{number % 4}",
            task_type=dice.choice(["sums", "products"]),
            started_at=began,
        )
        ended = Outcome(**own, status=status, cause=cause, error=error, ended_at=began + 9.0)
        write_segment(store, started, ended)
