"""Compaction beside concurrent writers, and with something broken."""

import threading

import pytest

from agent_layer.errors import BadInputError, CorruptRecordError, LeaseLostError
from agent_layer.store.index.commit import commit_segments
from agent_layer.store.maintenance.merge_plan import Limits
from agent_layer.store.maintenance.rebuild import drop_index, index_segment
from agent_layer.store.segments.format import read_footer, segment_key

from ...waiting import join

NOW = Limits(least_age_seconds=-1.0, wait_seconds=0.2)
"""What was written a moment ago is merged, too."""
SECRET = "c4rd-4929-1853"


def test_whoever_dies_while_a_segment_is_being_merged_is_gone_after_the_next_run(scene, store, write, monkeypatch):
    scene.fill(4)
    for part in scene.make_attempt("y.0-0", text=SECRET):
        write(*part)
    stored = store.objects.put

    def put_and_kill(key, content):
        if "-merged-" in key and store.redis.hexists(store.keys.trajectory("y.0-0"), "run"):
            scene.mark_deleted("y.0-0")
        stored(key, content)

    monkeypatch.setattr(store.objects, "put", put_and_kill)
    assert store.admin.compact(limits=NOW).num_left == 1
    assert store.query(labels={"secret": SECRET}).items == []

    assert store.admin.compact(limits=NOW, only_dead=True).num_left == 0
    assert list(scene.places(SECRET)) == []
    assert store.admin.check().findings == []


def test_readers_read_during_compactions(scene, store):
    members = scene.fill()
    expected = scene.answers()
    stop, failures = threading.Event(), []

    def read():
        while not stop.is_set():
            try:
                assert {member: store.get(member) for member in members} == expected[1]
                assert scene.answers() == expected
            except Exception as error:  # noqa: BLE001  # every failure is reported by the test
                failures.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(6):
        assert store.admin.compact(limits=NOW).num_removed == (11 if number == 0 else 12)
        scene.fill()  # all of it again, so that there is something to do
    stop.set()
    for reader in readers:
        join(reader)

    assert failures == []


def test_what_is_merged_during_a_check_is_no_finding(scene, store):
    scene.fill()

    report = store.admin.check(progress=lambda *_: store.admin.compact(limits=NOW))

    assert (report.num_trajectories, report.findings) == (6, [])
    assert len(scene.segments()) == 1


@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_rebuild_that_read_segments_before_they_were_merged_does_not_bring_them_back(scene, store, is_dropped):
    scene.fill()
    before = scene.answers()
    names = [name.decode() for name in store.redis.hkeys(store.keys.segments)]
    read = [read_footer(store.objects, segment_key(store.keys, name)) for name in names]

    store.admin.compact(limits=NOW)
    if is_dropped:
        drop_index(store.redis, store.keys)
    commit_segments(store.redis, store.keys, read, again=True)
    store.admin.reindex()
    store.admin.compact(limits=NOW)

    assert store.admin.check().findings == []
    assert scene.answers() == before


def test_a_log_that_is_shipped_again_after_its_segment_was_merged_goes_again(scene, store):
    scene.fill()
    before = scene.answers()
    name = store.redis.hkeys(store.keys.segments)[0].decode()
    key = segment_key(store.keys, name)
    content = store.objects.get(key)
    store.admin.compact(limits=NOW)

    store.objects.put(key, content)
    index_segment(store.redis, store.keys, store.objects, name)
    assert scene.answers() == before
    assert store.admin.check().findings == []

    assert store.admin.compact(limits=NOW).num_removed == 1
    assert len(scene.segments()) == 1
    assert scene.answers() == before
    assert store.admin.check().findings == []


def test_a_segment_of_a_replaced_name_that_says_more_is_kept(scene, store, write, put):
    scene.fill()
    name = write(*scene.make_attempt("z.0-0")[0])
    store.admin.compact(limits=NOW)
    put_as = segment_key(store.keys, name)
    other = put(*scene.make_attempt("z.0-0")[0], *scene.make_attempt("z.0-0")[1])
    content = store.objects.get(segment_key(store.keys, other))
    store.objects.delete(segment_key(store.keys, other))
    store.objects.put(put_as, content)
    store.redis.sadd(store.keys.rewrite, name)

    store.admin.compact(limits=NOW)
    store.admin.reindex(drop=True)

    assert store.row("z.0-0").policy_max == 4


def test_a_damaged_segment_is_named_and_left_alone(scene, store, write):
    scene.fill()
    bad = write(*scene.make_attempt("z.0-0")[0], *scene.make_attempt("y.0-0")[0])
    key = segment_key(store.keys, bad)
    content = bytearray(store.objects.get(key))
    content[20] ^= 1
    store.objects.put(key, bytes(content))
    scene.mark_deleted("y.0-0")

    report = store.admin.compact(limits=NOW)

    assert [(one.kind, one.subject) for one in report.findings] == [("corrupt", bad)]
    assert (report.num_removed, report.num_left) == (11, 1)
    assert store.objects.get(key) == bytes(content)
    assert [one.subject for one in store.admin.compact(limits=NOW, only_dead=True).findings] == [bad]


def test_nothing_goes_when_what_was_stored_is_not_what_is_read_back(scene, store, monkeypatch):
    scene.fill()
    before, stored = scene.answers(), store.objects.put
    monkeypatch.setattr(store.objects, "put", lambda key, content: stored(key, content[:-1] + b"!"))

    with pytest.raises(CorruptRecordError, match="found other bytes"):
        store.admin.compact(limits=NOW)

    assert len(scene.segments()) == 11
    assert scene.answers() == before


def test_one_at_a_time(scene, store):
    scene.fill()
    store.redis.set(store.keys.compacting, "another", px=60_000)

    with pytest.raises(LeaseLostError, match="another process"):
        store.admin.compact(limits=NOW)


def test_an_index_that_is_being_rebuilt_is_not_gone_by(scene, store):
    scene.fill()
    store.redis.hset(store.keys.reindexing, "done_to", "")

    with pytest.raises(BadInputError, match="rebuild"):
        store.admin.compact(limits=NOW)


def test_two_at_once_do_no_harm(scene, store, monkeypatch):
    """Both have read all segments before the first one stores what they become."""
    scene.fill()
    before, stored = scene.answers(), store.objects.put
    others = []

    def put(key, content):
        if not others:
            others.append("runs")
            store.redis.delete(store.keys.compacting)
            others.append(store.admin.compact(limits=NOW))
            store.redis.delete(store.keys.compacting)
        stored(key, content)

    monkeypatch.setattr(store.objects, "put", put)
    store.admin.compact(limits=NOW)
    monkeypatch.undo()

    assert scene.answers() == before
    assert store.admin.check().findings == []
    store.admin.compact(limits=NOW)
    assert len(scene.segments()) == 1
    store.admin.reindex(drop=True)
    assert scene.answers() == before
