"""Garbage collection removes unneeded objects and keeps each possible only copy."""

import time

import pytest

from agent_layer.infra.objects.filesystem import DirectoryObjects
from agent_layer.schema.step import Content
from agent_layer.store.maintenance.gc import Grace
from agent_layer.store.maintenance.merge_plan import Limits
from agent_layer.store.maintenance.rebuild import drop_index, index_segment
from agent_layer.store.segments.format import segment_key
from agent_layer.store.segments.tombstones import list_tombstones

from ...builders import attempt
from ...stored import mark_deleted
from ...waiting import scaled

NOW = Limits(least_age_seconds=-1.0)
AT_ONCE = Grace(seconds=-5.0, tombstone_seconds=-5.0)
"""Limits under which no object is too young, whatever the store's clocks."""


def fill(write):
    return [write(*attempt(f"x.{number}-0", score=0.5)) for number in range(4)]


def reasons(report):
    return {one.key.rpartition("/")[2]: one.reason for one in report.removed}


@pytest.fixture
def leftover(store, write):
    """A segment whose records were merged into another one, and that was stored again; the index names it, too."""
    names = fill(write)
    content = store.objects.get(segment_key(store.keys, names[0]))
    store.admin.compact(limits=NOW)
    store.objects.put(segment_key(store.keys, names[0]), content)
    store.redis.delete(store.keys.replaced(names[0]))
    index_segment(store.redis, store.keys, store.objects, names[0])
    return names[0]


def test_a_store_in_order_loses_nothing(store, write):
    fill(write)
    store.admin.compact(limits=NOW)
    before = list(store.objects.list(""))

    report = store.admin.collect_garbage(grace=AT_ONCE)

    assert (report.removed, report.findings) == ([], [])
    assert list(store.objects.list("")) == before


def test_a_segment_of_which_others_hold_everything_goes(store, leftover):
    before = [store.get(row.trajectory_id) for row in store.query().items]

    report = store.admin.collect_garbage(grace=AT_ONCE)

    assert list(reasons(report)) == [f"{leftover}.seg"]
    assert report.bytes_removed > 0
    assert [store.get(row.trajectory_id) for row in store.query().items] == before
    assert store.admin.check().findings == []


def test_a_dry_run_names_it_and_removes_nothing(store, leftover):
    report = store.admin.collect_garbage(grace=AT_ONCE, dry_run=True)

    assert list(reasons(report)) == [f"{leftover}.seg"]
    assert segment_key(store.keys, leftover) in store.objects.list("")
    assert store.admin.check().findings == []


@pytest.mark.usefixtures("leftover")
def test_nothing_younger_than_the_grace_period_goes(store):
    mark_deleted(store, "x.9-0")

    assert store.admin.collect_garbage().removed == []


def test_a_segment_that_says_more_than_what_replaced_it_stays(store, leftover, put):
    other = put(*attempt("x.0-0", score=0.5), Content(trajectory_id="x.0-0", hash="h", body=b"1"))
    content = store.objects.get(segment_key(store.keys, other))
    store.objects.delete(segment_key(store.keys, other))
    store.objects.put(segment_key(store.keys, leftover), content)

    assert store.admin.collect_garbage(grace=AT_ONCE).removed == []


def test_a_segment_that_nobody_indexed_stays_and_is_named(store, write, put):
    fill(write)
    name = put(*attempt("y.0-0", score=0.5))

    report = store.admin.collect_garbage(grace=AT_ONCE)

    assert report.removed == []
    assert [(one.kind, one.subject) for one in report.findings] == [("unindexed", name)]
    assert "store reindex" in report.findings[0].detail


@pytest.mark.usefixtures("leftover")
def test_where_the_index_is_lost_nothing_goes(store):
    before = list(store.objects.list(""))
    drop_index(store.redis, store.keys)

    assert store.admin.collect_garbage(grace=AT_ONCE).removed == []
    assert list(store.objects.list("")) == before


def test_a_merged_segment_that_was_never_committed_goes_and_what_it_was_to_replace_stays(store, write, monkeypatch):
    names = fill(write)
    monkeypatch.setattr("agent_layer.store.maintenance.compaction.commit_segments", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.admin.compact(limits=NOW)

    report = store.admin.collect_garbage(grace=AT_ONCE)

    assert len(report.removed) == 1
    assert "merged" in report.removed[0].key
    assert list(store.objects.list("")) == [segment_key(store.keys, name) for name in sorted(names)]
    assert store.admin.check().findings == []


def test_tombstones_stay_as_long_as_anything_is_stored_of_whom_they_name(store, write):
    write(*attempt("x.0-0", score=0.5), *attempt("x.1-0", score=0.5))
    mark_deleted(store, "x.0-0")

    assert store.admin.collect_garbage(grace=AT_ONCE).removed == []
    store.admin.compact(limits=NOW, only_dead=True)
    assert list(reasons(store.admin.collect_garbage(grace=AT_ONCE)).values()) == [
        "no stored record belongs to its owners"
    ]
    assert list(list_tombstones(store.keys, store.objects)) == []
    assert store.admin.check().findings == []
    assert not store.redis.exists(store.keys.dead)


def test_a_damaged_segment_keeps_all_tombstones(store, put):
    mark_deleted(store, "x.0-0")
    store.objects.put(segment_key(store.keys, put(*attempt("x.0-0", score=0.5))), b"x" * 100)

    report = store.admin.collect_garbage(grace=AT_ONCE)

    assert report.removed == []
    assert [one.kind for one in report.findings] == ["corrupt"]


def test_listings_tell_sizes_and_times(store):
    began = time.time()
    store.objects.put("a/b", b"12345")

    [entry] = store.objects.list_entries("a/")

    assert (entry.key, entry.size_bytes) == ("a/b", 5)
    assert entry.modified_at == pytest.approx(began, abs=scaled(60))


def test_what_a_killed_writer_left_of_an_object_goes(store):
    if not isinstance(store.objects, DirectoryObjects):
        pytest.skip("S3 shows no unfinished objects")
    segment = store.objects._directory / store.keys.namespace / "seg" / "2026"
    segment.mkdir(parents=True)
    (segment / ".x.seg.4711").write_bytes(b"half")
    assert list(store.objects.list("")) == []

    assert store.admin.collect_garbage().removed == []
    assert [one.size_bytes for one in store.admin.collect_garbage(grace=AT_ONCE).removed] == [4]
    assert list(segment.iterdir()) == []
