"""The path of a record from ``append`` into each kind of object store, through a shipper of its own."""

import threading

import pytest

from agent_layer.errors import CorruptRecordError
from agent_layer.infra.objects.filesystem import open_objects
from agent_layer.recorder import open_recorder
from agent_layer.schema.codec import decode
from agent_layer.schema.rollout import Accepted, AttemptStarted, Group, Outcome
from agent_layer.schema.step import Content
from agent_layer.shipper.direct import DirectDestination
from agent_layer.shipper.ship import Shipper
from agent_layer.state.outbox import read_outbox, remove_decisions
from agent_layer.store.segments.format import read_chunk, read_footer

ACCEPTED = {"kind": "accepted", "trajectory_id": "g.0-1", "rollout_id": "g.0", "group_id": "g", "run": "r", "at": "5.5"}
LOST = ACCEPTED | {"kind": "lost", "trajectory_id": "g.0-0", "at": "4", "error": "e"}
GROUP = {
    "kind": "group",
    "group_id": "g",
    "run": "r",
    "task_id": "t",
    "task_type": "default",
    "split": "eval",
    "group_size": "2",
    "at": "6.5",
    "members": "g.0-1",
}


def stored(objects):
    """All records in all segments."""
    keys = list(objects.list(""))
    chunks = [(key, chunk) for key in keys for chunk in read_footer(objects, key).footer.chunks]
    return [decode(record) for key, chunk in chunks for record in read_chunk(objects, key, chunk)]


def make_group(group_id: str, members: list[str]) -> Group:
    return Group(
        group_id=group_id, run="r", task_id="t", split="eval", group_size=2, closed_at=6.5, trajectory_ids=members
    )


@pytest.fixture
def ship_here(objects_settings, redis, keys):
    """One round of shipping in this process."""
    objects_settings.log_dir.mkdir(parents=True)
    direct = DirectDestination(keys, redis, open_objects(objects_settings))
    return Shipper(objects_settings.log_dir, direct, threading.Event()).ship_pending


def test_what_is_appended_lies_in_the_objects_and_the_index_after_a_flush(objects_settings, redis, keys):
    started = AttemptStarted(trajectory_id="g.0-0", rollout_id="g.0", attempt=0, run="r", task_id="t", started_at=1.0)
    content = Content(trajectory_id="g.0-0", hash="h", body=b"1")
    recorder = open_recorder(objects_settings)
    recorder.append(started, content)

    assert recorder.flush().pending == 0
    assert stored(open_objects(objects_settings)) == [started, content]
    assert redis.hget(keys.trajectory("g.0-0"), "task_id") == b"t"


def test_decisions_become_records_and_leave_the_outbox(objects_settings, redis, keys, ship_here):
    for entry in (LOST, ACCEPTED, GROUP, GROUP | {"group_id": "empty", "members": ""}):
        redis.xadd(keys.outbox, entry)

    assert ship_here() == 1

    assert sorted(stored(open_objects(objects_settings)), key=repr) == sorted(
        [
            Outcome(trajectory_id="g.0-0", run="r", status="lost", cause="infra", ended_at=4.0, error="e"),
            Accepted(trajectory_id="g.0-1", rollout_id="g.0", run="r", accepted_at=5.5, group_id="g"),
            make_group("g", ["g.0-1"]),
            make_group("empty", []),
        ],
        key=repr,
    )
    assert redis.xlen(keys.outbox) == 0
    assert redis.hget(keys.trajectory("g.0-1"), "accepted") == b"1"
    assert redis.hget(keys.trajectory("g.0-0"), "status") == b"lost"
    assert redis.zscore(keys.closed_groups("r"), "g") == 6.5


def test_a_shipper_that_dies_before_the_outbox_is_cleared_makes_the_same_segment_again(
    objects_settings, redis, keys, ship_here
):
    entry_id = redis.xadd(keys.outbox, ACCEPTED)
    ship_here()
    redis.delete(keys.outbox)
    redis.xadd(keys.outbox, ACCEPTED, id=entry_id)
    ship_here()

    assert redis.xlen(keys.outbox) == 0
    assert len(list(open_objects(objects_settings).list(""))) == 1


def test_decisions_that_are_read_again_are_the_same_segment_however_many_came_since(redis, keys):
    redis.xadd(keys.outbox, ACCEPTED)
    first = read_outbox(redis, keys)
    redis.xadd(keys.outbox, ACCEPTED)

    again = read_outbox(redis, keys)
    remove_decisions(redis, keys, again)
    rest = read_outbox(redis, keys)

    assert (again.name, len(again.records)) == (first.name, 1)
    assert (rest.name != first.name, len(rest.records)) == (True, 1)
    remove_decisions(redis, keys, rest)
    assert read_outbox(redis, keys) is None


def test_a_decision_of_an_unknown_kind_is_named_and_stays(redis, keys):
    redis.xadd(keys.outbox, {"kind": "poetry"})

    with pytest.raises(CorruptRecordError, match="'poetry'"):
        read_outbox(redis, keys)
