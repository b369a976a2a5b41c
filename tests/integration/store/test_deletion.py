"""Logs that name a deleted trajectory and are shipped afterwards store nothing of it."""

import shutil

import pytest

from agent_layer.recorder import Recorder
from agent_layer.store import open_store

from ...builders import closed_group, group_of_one
from ...stored import mark_deleted, stored_owners, write_segment
from ...watching import count_commands


@pytest.fixture
def store(settings):
    return open_store(settings)


@pytest.fixture
def log(settings):
    """``log(*tasks)``: writes one log with a group of each."""

    def log(*tasks):
        recorder = Recorder(settings)
        recorder.append(*(record for task in tasks for record in group_of_one(task)))
        recorder.close()

    return log


def test_a_log_that_is_shipped_again_stores_the_dead_no_more(store, settings, log, ship_here, tmp_path):
    log("gone", "kept")
    shutil.copytree(settings.log_dir, tmp_path / "copy")
    ship_here()
    store.admin.delete(task="gone")
    shutil.copytree(tmp_path / "copy", settings.log_dir, dirs_exist_ok=True)

    assert ship_here() == 1

    assert stored_owners(store) == {"kept.0-0", "group:kept"}
    assert store.count(task="gone") == 0
    assert not store.redis.exists(store.keys.group("gone"))
    assert store.get("kept.0-0").accepted
    assert store.admin.check().findings == []


def test_what_is_said_of_the_dead_alone_is_not_stored(store, log, ship_here):
    log("gone")
    ship_here()
    store.admin.delete(task="gone")
    log("gone")

    ship_here()

    assert stored_owners(store) == set()
    assert store.admin.check().findings == []


def test_deleting_groups_costs_the_same_whatever_number_of_runs_there_is(store):
    names = [f"group:g{number}" for number in range(8)]
    costs = []
    for runs in (range(1), range(1, 300)):
        store.redis.sadd(store.keys.runs, *(f"run:{number}" for number in runs))
        groups = [closed_group(name, run=f"run:{at % 2}", closed_at=9.0 + at) for at, name in enumerate(names)]
        write_segment(store, *groups)
        with count_commands(store.redis, store.keys) as counts:
            mark_deleted(store, *(f"group:{name}" for name in names))
        costs.append(counts)
        names = [f"{name}:again" for name in names]

    assert costs[0] == costs[1]
    assert [store.redis.zcard(store.keys.closed_groups(f"run:{number}")) for number in (0, 1)] == [0, 0]
