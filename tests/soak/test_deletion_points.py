"""A deletion that is killed at any point is finished by the next one."""

from itertools import count

import pytest

from agent_layer.infra.objects.filesystem import open_objects
from agent_layer.recorder import Recorder
from agent_layer.store.segments.tombstones import list_tombstones, owner_hash
from agent_layer.store.store import Store

from ..builders import group_of_one
from ..stored import stored_owners


@pytest.fixture
def store(settings, redis):
    return Store(settings, redis, open_objects(settings))


@pytest.fixture
def log(settings):
    """``log(*tasks)``: writes one log that speaks of all of them."""

    def log(*tasks):
        recorder = Recorder(settings)
        recorder.append(*(record for task in tasks for record in group_of_one(task)))
        recorder.close()

    return log


@pytest.fixture
def delete_and_die(settings, killed_at):
    """``delete_and_die(turn, task)``: whether the process was killed at this point; False: it ended before."""
    return lambda turn, task: killed_at(
        turn, lambda redis, objects: Store(settings, redis, objects).admin.delete(task=task)
    )


@pytest.mark.parametrize("rebuild", ["delete again", "check", "reindex"])
def test_whatever_the_point_asking_again_finishes_it(store, log, ship_here, delete_and_die, rebuild):
    log("kept")
    for turn in count():
        task = f"task-{turn}"
        log(task, f"beside-{turn}")
        ship_here()

        was_killed = delete_and_die(turn, task)
        store.redis.delete(store.keys.compacting)  # the lock of the dead process expires
        is_reported = task_is_dead(store, task)
        if rebuild == "check":
            store.admin.check(repair=True)
        elif rebuild == "reindex":
            store.admin.reindex(drop=True)
        if is_reported and rebuild != "delete again":
            assert not found(store, task), f"turn {turn}"
        store.admin.delete(task=task)

        assert not found(store, task), f"turn {turn}"
        assert stored_owners(store) & {f"{task}.0-0", f"group:{task}"} == set(), f"turn {turn}"
        assert store.get(f"beside-{turn}.0-0").accepted
        store.admin.delete(task=f"beside-{turn}")
        if not was_killed:
            break
    assert turn > 10
    assert store.get("kept.0-0").accepted
    assert stored_owners(store) == {"kept.0-0", "group:kept"}
    assert store.admin.check().findings == []


def task_is_dead(store, task):
    hashes = {stone.owner_hash for stone in list_tombstones(store.keys, store.objects)}
    return owner_hash(f"{task}.0-0") in hashes


def found(store, task):
    return store.count(task=task) or store.redis.exists(store.keys.group(task))
