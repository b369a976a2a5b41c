"""``store compact`` and ``store gc`` as users type them."""

import re
import sys

import pytest

from agent_layer.cli.main import main
from agent_layer.schema.codec import encode
from agent_layer.schema.ids import new_id
from agent_layer.schema.rollout import AttemptStarted
from agent_layer.store import open_store
from agent_layer.store.index.deletion import apply_tombstones
from agent_layer.store.maintenance.rebuild import index_segment
from agent_layer.store.segments.format import StoredRecord, build_segment, segment_key
from agent_layer.store.segments.tombstones import write_tombstones

LONG_AGO = 1_790_000_000


def started(tid, at):
    record = AttemptStarted(trajectory_id=tid, rollout_id=tid[:-2], attempt=0, run="r", task_id="t", started_at=at)
    return StoredRecord(record, encode(record))


@pytest.fixture
def store(settings):
    """Three old segments with two trajectories."""
    store = open_store(settings)
    for number in range(3):
        name = new_id(lambda at=LONG_AGO + number: at * 10**9)
        records = {tid: [started(tid, float(number))] for tid in ("x.0-0", "y.0-0")}
        store.objects.put(segment_key(store.keys, name), build_segment(name, records)[0])
        index_segment(store.redis, store.keys, store.objects, name)
    return store


@pytest.fixture
def care(store, settings, monkeypatch, capfd):
    """``care("compact", …)`` runs ``store compact …``; gives (exit status, stdout, stderr)."""
    assert store.count() == 2
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agent-layer", "store", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return ended.value.code, out, err

    return run


def test_compact_says_what_it_did(store, care):
    status, out, _ = care("compact", "--dry-run")
    assert (status, store.redis.hlen(store.keys.segments)) == (0, 3)
    assert re.match(r"3 of 3 segments would become 1 \([\d.]+ KB\), 0 left", out)

    assert re.match(r"3 of 3 segments became 1 \([\d.]+ KB -> [\d.]+ \w+\), 0 left", care("compact")[1])
    assert care("compact")[1].startswith("0 of 1 segments became 0")
    assert store.admin.check().findings == []


def test_only_dead_takes_out_the_bytes_of_the_dead(store, care):
    apply_tombstones(
        store.redis, store.keys, ["y.0-0"], write_tombstones(store.keys, store.objects, ["y.0-0"], "deleted")
    )

    status, out, _ = care("compact", "--only-dead")

    assert (status, out.partition(" (")[0]) == (0, "3 of 3 segments became 1")
    assert [row.trajectory_id for row in store.query().items] == ["x.0-0"]


def test_what_cannot_be_read_is_named_and_fails_the_command(store, care):
    name = store.redis.hkeys(store.keys.segments)[0].decode()
    store.objects.delete(segment_key(store.keys, name))

    status, out, err = care("compact")

    assert (status, out.partition(" (")[0]) == (1, "2 of 3 segments became 1")
    assert f"left alone: missing: {name}" in err


def test_gc_removes_nothing_that_is_needed(care):
    assert care("gc", "--grace", "0s")[:2] == (0, "0 of 3 objects removed (0 bytes)\n")
    status, _, err = care("gc", "--grace", "soon")
    assert status == 2
    assert "--grace 'soon'" in err
