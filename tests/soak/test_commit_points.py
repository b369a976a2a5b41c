"""A shipper that is killed at any point of a commit leaves work that the next one does once."""

import sys
from itertools import count

import pytest

from agent_layer.engines.policies import list_policies
from agent_layer.infra.objects.filesystem import open_objects
from agent_layer.recorder import Recorder
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import AttemptStarted, Group, Outcome
from agent_layer.schema.step import Action, StepPart
from agent_layer.schema.training import PolicyVersion, TrainedBatch
from agent_layer.shipper.direct import DirectDestination
from agent_layer.store.consumers.trained_batches import list_batches
from agent_layer.store.store import Store

NUM_CALLS = 300
"""More than one script merges, so that a trajectory is entered by several."""
DECIDED = {"kind": "accepted", "group_id": "", "run": "r", "at": "5.5"}


def record_attempt(settings, redis, keys, number: int) -> str:
    """Two logs: a start, and all that follows; then decisions about it."""
    name = f"r.{number}"
    own = {"trajectory_id": f"{name}-0", "run": "r"}
    calls = [{**own, "call_id": str(call), "source": "gateway"} for call in range(NUM_CALLS)]
    action = Action(policy_versions=[(number, 1)])
    batch = {"policy_version": number, "trained_at": 1.0, "rollouts": [], "num_samples": 0, "batch_hash": "h"}
    for records in (
        [
            AttemptStarted(**own, rollout_id=name, attempt=0, task_id="t", started_at=1.0),
            *(StepPart(**call, phase="start", at=2.0) for call in calls),
        ],
        [
            *(StepPart(**call, phase="end", at=3.0, status="ok", actions=[action, action]) for call in calls),
            Reward(**own, reward_id=f"w{number}", at=3.0, score=0.5),
            Outcome(**own, status="completed", ended_at=4.0, num_calls=NUM_CALLS),
            Group(group_id=f"g{number}", run="r", task_id="t", closed_at=number + 1.0, trajectory_ids=[f"{name}-0"]),
            PolicyVersion(run="r", number=number, location="w", created_at=1.0),
            TrainedBatch(run="r", batch_id=f"b{number}", step=number, **batch),
        ],
    ):
        recorder = Recorder(settings)
        recorder.append(*records)
        recorder.close()
    redis.xadd(keys.outbox, {**DECIDED, "rollout_id": name, "trajectory_id": f"{name}-0"})
    return f"{name}-0"


@pytest.fixture
def ship_and_die(ship_here, killed_at):
    """``ship_and_die(turn)``: the point at which a shipper was killed; None: it ended before."""

    def ship(redis, objects):
        def note_removal(event, _):
            if event == "os.remove":
                redis.kill_point.reach("before the log goes")

        sys.addaudithook(note_removal)
        DirectDestination.num_at_once = 1  # in this process: one log after the other, so that points have an order
        ship_here(objects, redis)

    return lambda turn: killed_at(turn, ship)


def test_whatever_the_point_the_next_shipper_does_the_rest_and_nothing_twice(
    settings, redis, keys, ship_here, ship_and_die
):
    store = Store(settings, redis, open_objects(settings))
    points = []
    for turn in count():
        trajectory_id = record_attempt(settings, redis, keys, turn)
        point = ship_and_die(turn)
        ship_here()

        points.append(point)
        print(f"turn {turn}: {point}")  # noqa: T201  # shown when it fails
        row = store.row(trajectory_id)
        assert (row.num_steps, row.reward, row.status, row.accepted) == (2 * NUM_CALLS, 0.5, "completed", True), point
        assert read_contents(store, trajectory_id) == (2 * NUM_CALLS, NUM_CALLS, 1, True), point
        assert read_counts(store) == [turn + 1, turn + 1, 0, turn + 1, turn + 1, turn + 1, turn + 1], point
        assert not [*settings.log_dir.glob("*-*.log")], point
        assert redis.xlen(keys.outbox) == 0, point
        if point is None:
            break
    assert_every_kind(points)
    assert store.admin.check().findings == []
    assert len(list(store.objects.list(""))) == redis.hlen(keys.segments)
    before = answers(store)
    store.admin.reindex(drop=True)
    assert answers(store) == before


def assert_every_kind(points) -> None:
    """The points at which the issue asks a process to stop; between the scripts of one segment several times."""
    scripts = [point for point in points if point and "EVALSHA" in point]
    assert {"before PUT", "after PUT", "before the log goes", None} <= set(points)
    assert len(scripts) >= 16, scripts


def read_contents(store: Store, trajectory_id: str) -> tuple[int, int, int, bool]:
    """Steps, calls, rewards, acceptance."""
    trajectory = store.get(trajectory_id)
    calls = {step.call_id for step in trajectory.steps}
    return len(trajectory.steps), len(calls), len(trajectory.rewards), trajectory.accepted is not None


def read_counts(store: Store) -> list[int]:
    return [
        store.count(),
        store.count(status="completed", reward=(0.5, 0.5)),
        store.count(status="running"),
        store.count(accepted=True, policy=(0, None)),
        store.redis.zcard(store.keys.closed_groups("r")),
        len(list_policies(store.redis, store.keys, "r")),
        len(list_batches(store.redis, store.keys, "r")),
    ]


def answers(store: Store) -> list[object]:
    rows = store.query(run="r", limit=500).items
    return [read_counts(store), [(row, read_contents(store, row.trajectory_id)) for row in rows]]
