"""A deletion whose process is killed, and logs that mention deleted trajectories afterwards."""

import os
import shutil
import signal
from itertools import count
from multiprocessing import get_context

import pytest
from redis import Redis

from agent_layer.infra.objects.filesystem import DirectoryObjects, open_objects
from agent_layer.recorder import Recorder
from agent_layer.schema.group import Group
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Content
from agent_layer.store.segments.format import read_footer
from agent_layer.store.segments.tombstones import list_tombstones, owner_hash
from agent_layer.store.store import Store


class Fate:
    """Kills this process at its n-th turn."""

    def __init__(self, turn):
        self._left = turn

    def turn(self):
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


class DeadlyObjects(DirectoryObjects):
    """A turn before an object is stored or removed, and one after."""

    def put(self, key, content):
        self.fate.turn()
        super().put(key, content)
        self.fate.turn()

    def delete(self, key):
        self.fate.turn()
        super().delete(key)
        self.fate.turn()


class DeadlyRedis(Redis):
    """A turn before each command, and one after it was carried out."""

    def execute_command(self, *args, **options):
        self.fate.turn()
        answer = super().execute_command(*args, **options)
        self.fate.turn()
        return answer


def records_of(task):
    """Return the records of a group of one attempt, with a content that names its task."""
    own, rollout = {"trajectory_id": f"{task}.0-0", "run": "r"}, {"rollout_id": f"{task}.0", "group_id": task}
    return [
        AttemptStarted(**own, **rollout, attempt=0, task_id=task, started_at=1.0),
        Content(trajectory_id=f"{task}.0-0", hash="h", body=f"the secret of {task}".encode()),
        Outcome(**own, status="completed", ended_at=2.0),
        Accepted(**own, **rollout, accepted_at=3.0),
        Group(group_id=task, run="r", task_id=task, closed_at=4.0, trajectory_ids=[f"{task}.0-0"]),
    ]


@pytest.fixture
def store(settings, redis):
    return Store(settings, redis, open_objects(settings))


@pytest.fixture
def log(settings):
    """``log(*tasks)``: writes one log that speaks of all of them."""

    def log(*tasks):
        recorder = Recorder(settings)
        recorder.append(*(record for task in tasks for record in records_of(task)))
        recorder.close()

    return log


@pytest.fixture
def delete_and_die(settings, redis):
    """``delete_and_die(turn, task)``: whether the process was killed at this turn; False: it came to its end before."""

    def work(turn, task):
        objects = DeadlyObjects(settings.dir / "objects")
        deadly = DeadlyRedis(connection_pool=redis.connection_pool)
        objects.fate = deadly.fate = Fate(turn)
        Store(settings, deadly, objects).delete(task=task)

    def start(turn, task):
        victim = get_context("fork").Process(target=work, args=(turn, task))
        victim.start()
        victim.join()
        assert victim.exitcode in (0, -signal.SIGKILL)
        return victim.exitcode != 0

    return start


def owners_stored(store):
    keys = [key for key in store.objects.list("") if key.endswith(".seg")]
    return {chunk.owner for key in keys for chunk in read_footer(store.objects, key).footer.chunks}


def owners_of(task):
    return {f"{task}.0-0", f"group:{task}"}


@pytest.mark.parametrize("rebuild", ["delete again", "check", "reindex"])
def test_whatever_the_point_asking_again_finishes_it(store, log, ship_here, delete_and_die, rebuild):
    log("kept")
    for turn in count():
        task = f"task-{turn}"
        log(task, f"beside-{turn}")
        ship_here()

        was_killed = delete_and_die(turn, task)
        store.redis.delete(store.keys.compacting)  # as if the turn of who died had lapsed
        is_said = task_is_dead(store, task)
        if rebuild == "check":
            store.admin.check(repair=True)
        elif rebuild == "reindex":
            store.admin.reindex(drop=True)
        if is_said and rebuild != "delete again":
            assert not found(store, task), f"turn {turn}"
        store.delete(task=task)

        assert not found(store, task), f"turn {turn}"
        assert owners_stored(store) & owners_of(task) == set(), f"turn {turn}"
        assert store.get(f"beside-{turn}.0-0").accepted
        store.delete(task=f"beside-{turn}")
        if not was_killed:
            break
    assert turn > 10
    assert store.get("kept.0-0").accepted
    assert owners_stored(store) == owners_of("kept")
    assert store.admin.check().findings == []


def task_is_dead(store, task):
    hashes = {stone.owner_hash for stone in list_tombstones(store.keys, store.objects)}
    return owner_hash(f"{task}.0-0") in hashes


def found(store, task):
    return store.count(task=task) or store.redis.exists(store.keys.group(task))


def test_a_log_that_is_shipped_again_stores_the_dead_no_more(store, settings, log, ship_here, tmp_path):
    log("gone", "kept")
    shutil.copytree(settings.log_dir, tmp_path / "copy")
    ship_here()
    store.delete(task="gone")
    shutil.copytree(tmp_path / "copy", settings.log_dir, dirs_exist_ok=True)

    assert ship_here() == 1

    assert owners_stored(store) == owners_of("kept")
    assert not found(store, "gone")
    assert store.get("kept.0-0").accepted
    assert store.admin.check().findings == []


def test_what_is_said_of_the_dead_alone_is_not_stored(store, log, ship_here):
    log("gone")
    ship_here()
    store.delete(task="gone")
    log("gone")

    ship_here()

    assert owners_stored(store) == set()
    assert store.admin.check().findings == []
