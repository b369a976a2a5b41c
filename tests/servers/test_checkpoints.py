"""Checkpoints: read back as stored or not at all, and deleted once no attempt can need them."""

import msgspec
import pytest

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.state.checkpoints import (
    Checkpoint,
    checkpoint_name,
    checkpoint_prefix,
    read_checkpoint,
    remove_checkpoint,
    store_checkpoint,
)
from agent_layer.store.maintenance.gc import Grace

from ..builders import attempt

AT_ONCE = Grace(seconds=-5.0)
"""Limits under which no object is too young, whatever the store's clocks."""
SOME = Checkpoint(calls=3, seconds=1.5, state=b"where I was" * 100, logs=["log-1"])


@pytest.fixture
def keep(store):
    """``keep(trajectory_id)``: store a checkpoint of it; returns its name."""

    def keep(trajectory_id):
        name = checkpoint_name(trajectory_id, "17", 0)
        store_checkpoint(store.keys, store.objects, name, SOME)
        return name

    return keep


def kept(store):
    return [key.rpartition("/")[2] for key in store.objects.list(checkpoint_prefix(store.keys))]


def test_what_was_stored_is_read_back(store, keep):
    name = keep("r~1:x.y-0")

    assert read_checkpoint(store.keys, store.objects, name) == SOME


def test_a_removed_one_is_gone_and_removing_it_again_is_no_error(store, keep):
    name = keep("r-0")
    for _ in range(2):
        remove_checkpoint(store.keys, store.objects, name)

    with pytest.raises(NotFoundError, match="start its attempt again"):
        read_checkpoint(store.keys, store.objects, name)


@pytest.mark.parametrize("at", [0, 16, -1])
def test_other_bytes_are_not_taken_for_it(store, keep, at):
    name = keep("r-0")
    key = f"{checkpoint_prefix(store.keys)}{name}"
    stored = bytearray(store.objects.get(key))
    stored[at] ^= 1
    store.objects.put(key, bytes(stored))

    with pytest.raises(CorruptRecordError, match="found others"):
        read_checkpoint(store.keys, store.objects, name)


def test_one_of_another_version_is_not_gone_on_with(store):
    name = checkpoint_name("r-0", "17", 0)
    store_checkpoint(store.keys, store.objects, name, msgspec.structs.replace(SOME, calls="three"))

    with pytest.raises(CorruptRecordError, match="start its attempt again"):
        read_checkpoint(store.keys, store.objects, name)


def test_garbage_collection_takes_those_of_ended_attempts(store, write, keep):
    write(*attempt("ended-0", status="failed"), *attempt("running-0", status="running"))
    names = [keep(f"{state}-0") for state in ("ended", "running", "unheard-of")]

    assert store.admin.collect_garbage().removed == []
    report = store.admin.collect_garbage(grace=AT_ONCE)

    assert [one.key.rpartition("/")[2] for one in report.removed] == names[:1]
    assert sorted(kept(store)) == sorted(names[1:])


def test_and_those_that_are_older_than_anybody_waits(store, write, keep):
    write(*attempt("running-0", status="running"))
    keep("running-0")

    report = store.admin.collect_garbage(grace=Grace(seconds=-5.0, checkpoint_seconds=-5.0))

    assert [one.reason for one in report.removed] == ["its attempt was not resumed"]
    assert kept(store) == []


def test_no_checkpoint_outlives_the_deletion_of_its_attempt(store, write, keep):
    write(*attempt("r-0", status="running"), *attempt("other-0", status="running"))
    keep("r-0")
    other = keep("other-0")

    store.delete("r-0")

    assert kept(store) == [other]
