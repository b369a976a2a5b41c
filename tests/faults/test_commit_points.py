"""A shipper that is killed at any point of a commit leaves work that the next one does once."""

import os
import signal
import sys
from itertools import count
from multiprocessing import get_context

import msgspec
import pytest
from redis import Redis

from agent_layer.recorder import Recorder
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import AttemptStarted, Outcome
from agent_layer.schema.step import Action, StepPart
from agent_layer.store.objects import DirectoryObjects, open_objects
from agent_layer.store.store import Store

DECIDED = {"kind": "accepted", "rollout_id": "r.0", "group_id": "g", "run": "r", "at": "5.5"}


class Fate:
    """Kills this process at its n-th turn."""

    def __init__(self, turn: int) -> None:
        self._left = turn

    def turn(self) -> None:
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


class DeadlyObjects(DirectoryObjects):
    """A turn before an object is stored, and one after."""

    fate: Fate

    def put(self, key, content):
        self.fate.turn()
        super().put(key, content)
        self.fate.turn()


class DeadlyRedis(Redis):
    """A turn before each command, and one after it was carried out."""

    fate: Fate

    def execute_command(self, *args, **options):
        self.fate.turn()
        answer = super().execute_command(*args, **options)
        self.fate.turn()
        return answer


def record_attempt(settings, redis, keys, number: int) -> str:
    """Two logs of one attempt, and a decision about it."""
    trajectory_id = f"r.{number}-0"
    own = {"trajectory_id": trajectory_id, "run": "r"}
    call = {**own, "call_id": "c", "source": "gateway"}
    action = Action(policy_versions=[(number, 1)])
    for records in (
        [
            AttemptStarted(**own, rollout_id=f"r.{number}", attempt=0, task_id="t", started_at=1.0),
            StepPart(**call, phase="start", at=2.0),
        ],
        [
            StepPart(**call, phase="end", at=3.0, status="ok", actions=[action, action]),
            Reward(**own, reward_id=f"w{number}", at=3.0, score=0.5),
            Outcome(**own, status="completed", ended_at=4.0, num_calls=1),
        ],
    ):
        recorder = Recorder(settings)
        recorder.append(*records)
        recorder.close()
    redis.xadd(keys.outbox, {**DECIDED, "trajectory_id": trajectory_id})
    return trajectory_id


@pytest.fixture
def ship_and_die(settings, redis, ship_here):
    """``ship_and_die(turn)``: whether a shipper was killed at this turn; False: it came to its end before."""

    def work(turn: int) -> None:
        fate = Fate(turn)
        objects = DeadlyObjects(settings.dir / "objects")
        deadly = DeadlyRedis(connection_pool=redis.connection_pool)
        objects.fate = deadly.fate = fate
        sys.addaudithook(lambda event, _: fate.turn() if event == "os.remove" else None)  # the log goes
        ship_here(objects, deadly)

    def start(turn: int) -> bool:
        victim = get_context("fork").Process(target=work, args=(turn,))
        victim.start()
        victim.join()
        assert victim.exitcode in (0, -signal.SIGKILL)
        return victim.exitcode != 0

    return start


def test_whatever_the_point_the_next_shipper_does_the_rest_and_nothing_twice(
    settings, redis, keys, ship_here, ship_and_die
):
    store = Store(settings, redis, open_objects(settings))
    for turn in count():
        trajectory_id = record_attempt(settings, redis, keys, turn)
        was_killed = ship_and_die(turn)
        ship_here()

        row = store.row(trajectory_id)
        assert (row.num_steps, row.reward, row.status, row.accepted) == (2, 0.5, "completed", True), f"turn {turn}"
        assert not [*settings.log_dir.glob("*-*.log")]
        assert redis.xlen(keys.outbox) == 0
        if not was_killed:
            break
    assert turn > 15
    assert store.check().findings == []
    assert len(list(store.objects.list(""))) == redis.hlen(keys.segments)
    before = answers(store)
    store.reindex(drop=True)
    assert answers(store) == before


def answers(store: Store) -> list[object]:
    rows = store.query(run="r", limit=200).items
    return [(row, msgspec.msgpack.encode(store.get(row.trajectory_id), enc_hook=list)) for row in rows]
