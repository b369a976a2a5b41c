"""Trajectories, groups and batches whose names read like those of another kind, or of another's part."""

from collections import defaultdict

import pytest

from agent_layer.infra.redis.keys import Keys
from agent_layer.schema.codec import encode, record_owner
from agent_layer.schema.ids import new_id, owner_text, split_owner, trajectory_owner
from agent_layer.schema.training import TrainedBatch, TrainedRollout
from agent_layer.store import open_store
from agent_layer.store.maintenance.merge_plan import Limits
from agent_layer.store.maintenance.rebuild import index_segment
from agent_layer.store.segments.format import StoredRecord, build_segment, segment_key

from ...builders import attempt, closed_group, group_of_one
from ...stored import collect_answers, lose_index, stored_owners, write_segment

NAMES = [
    "group:x",
    "x.0-0",  # as a group, its text is that of the trajectory group:x.0-0
    "batch:r:1",
    "policy:r:0",
    "trajectory:x",
    "group:",
    "group:group:x",
    "batch",
    "a:calls",
    "a=b",
    "a/b,c d",
    "a\0b\nc",
    "größe-✓",
    "x" * 500,
]
AT_ONCE = Limits(least_age_seconds=0.0)


@pytest.fixture
def store(settings):
    return open_store(settings)


@pytest.mark.parametrize("kind", ["trajectory", "group", "policy", "batch"])
def test_no_two_owners_share_a_text(kind):
    names = {*NAMES, *(owner_text("group", name) for name in NAMES), *map(trajectory_owner, NAMES)}

    assert {split_owner(owner_text(kind, name)) for name in names} == {(kind, name) for name in names}


def make_batch(step, *trajectory_ids):
    rollouts = [
        TrainedRollout(trajectory_id=one, group_id="g", reward=1.0, reward_ids=[], samples_hash="s")
        for one in trajectory_ids
    ]
    return TrainedBatch(
        run="r",
        step=step,
        batch_id=new_id(),
        policy_version=0,
        num_samples=1,
        batch_hash="b",
        trained_at=float(step),
        rollouts=rollouts,
    )


def write_with_batch(store, name, step):
    return write_segment(store, *group_of_one(name), make_batch(step, f"{name}.0-0"))


def write_as_before(store, *records):
    """Write a segment as versions did that named owners by their bare text."""
    owned = defaultdict(list)
    for record in records:
        kind, name = split_owner(record_owner(record))
        owned[name if kind == "trajectory" else f"{kind}:{name}"].append(StoredRecord(record, encode(record)))
    segment = new_id()
    store.objects.put(segment_key(store.keys, segment), build_segment(segment, owned)[0])
    index_segment(store.redis, store.keys, store.objects, segment)


def test_every_name_is_merged_once_and_deleted_alone(store):
    for step, name in enumerate(NAMES):
        write_with_batch(store, name, step)
    before = collect_answers(store)

    report = store.admin.compact(limits=AT_ONCE)

    assert (report.num_made, report.num_removed) == (1, len(NAMES))
    assert store.admin.compact(limits=AT_ONCE).num_made == 0
    assert collect_answers(store) == before
    assert store.admin.check().findings == []

    left = set(NAMES)
    for name in NAMES:
        store.admin.delete(task=name)
        left.remove(name)
        assert {row.task_id for row in store.query(limit=100).items} == left, name
        assert {one for one in NAMES if store.redis.exists(store.keys.group(one))} == left, name
    assert {split_owner(one)[0] for one in stored_owners(store)} == {"batch"}
    assert store.admin.check().findings == []


def test_what_an_earlier_version_stored_under_one_text_is_told_apart(store):
    names = ["group:x", "x.0-0", "trajectory:y", "batch:r:1"]
    for name in names:
        write_as_before(store, *group_of_one("x.0-0"), *group_of_one(name))  # group x.0-0, trajectory group:x.0-0
    before = collect_answers(store)

    lose_index(store)
    store.admin.reindex()
    assert collect_answers(store) == before
    assert store.admin.compact(limits=AT_ONCE).num_made == 1
    assert store.admin.compact(limits=AT_ONCE).num_made == 0
    assert collect_answers(store) == before

    store.admin.delete(task="group:x")
    lose_index(store)
    store.admin.reindex()
    assert {row.task_id for row in store.query().items} == {"x.0-0", "trajectory:y", "batch:r:1"}
    assert store.redis.exists(store.keys.group("x.0-0"))
    assert store.admin.check().findings == []


def test_a_run_that_begins_like_another_has_its_own_consumers(store):
    write_segment(store, *attempt("a.0-0", group_id="a"), closed_group("a", "a.0-0"))
    store.redis.sadd(store.keys.acked("r:other", "trainer"), "someone-else's")  # once kept all of run r

    assert store.admin.expire(older_than=1e9).deletion.num_trajectories == 1


def test_a_reward_id_is_never_read_as_the_end_of_a_trajectory():
    keys = Keys("n")

    assert keys.judged("a-0", "b-1:c") != keys.judged("a-0:b-1", "c")
