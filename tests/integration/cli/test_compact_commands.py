"""``store compact`` and ``store gc`` as users type them."""

import re
from functools import partial

import pytest

from agent_layer.schema.ids import new_id
from agent_layer.store import open_store
from agent_layer.store.segments.format import segment_key

from ...builders import attempt
from ...stored import mark_deleted, write_segment

LONG_AGO = 1_790_000_000


@pytest.fixture
def store(settings):
    """Three old segments with two trajectories."""
    store = open_store(settings)
    for number in range(3):
        name = new_id(lambda at=LONG_AGO + number: at * 10**9)
        ids = ("x.0-0", "y.0-0")
        started = [record for tid in ids for record in attempt(tid, at=float(number), status="running")]
        write_segment(store, *started, name=name)
    return store


@pytest.fixture
def maintain(agent_layer, store):
    """``maintain("compact", …)`` runs ``store compact …``: (exit status, stdout, stderr)."""
    assert store.count() == 2
    return partial(agent_layer, "store")


def test_compact_says_what_it_did(store, maintain):
    status, out, _ = maintain("compact", "--dry-run")
    assert (status, store.redis.hlen(store.keys.segments)) == (0, 3)
    assert re.match(r"3 of 3 segments would become 1 \([\d.]+ KB\), 0 left", out)

    assert re.match(r"3 of 3 segments became 1 \([\d.]+ KB -> [\d.]+ \w+\), 0 left", maintain("compact")[1])
    assert maintain("compact")[1].startswith("0 of 1 segment became 0")
    assert store.admin.check().findings == []


def test_only_dead_takes_out_the_bytes_of_the_dead(store, maintain):
    mark_deleted(store, "y.0-0")

    status, out, _ = maintain("compact", "--only-dead")

    assert (status, out.partition(" (")[0]) == (0, "3 of 3 segments became 1")
    assert [row.trajectory_id for row in store.query().items] == ["x.0-0"]


def test_what_cannot_be_read_is_named_and_fails_the_command(store, maintain):
    name = store.redis.hkeys(store.keys.segments)[0].decode()
    store.objects.delete(segment_key(store.keys, name))

    status, out, err = maintain("compact")

    assert (status, out.partition(" (")[0]) == (1, "2 of 3 segments became 1")
    assert f"left alone: missing: {name}" in err


def test_gc_removes_nothing_that_is_needed(maintain):
    assert maintain("gc", "--grace", "0s")[:2] == (0, "0 of 3 objects removed (0 bytes)\n")
    status, _, err = maintain("gc", "--grace", "soon")
    assert status == 2
    assert "--grace 'soon'" in err
