"""Compaction: the same answers from fewer objects, and no byte of deleted trajectories."""

import pytest

from agent_layer.store.maintenance.merge_plan import Limits
from agent_layer.store.segments.format import segment_key

NOW = Limits(least_age_seconds=-1.0, wait_seconds=0.2)
"""What was written a moment ago is merged, too."""
SECRET = "c4rd-4929-1853"


def test_many_small_segments_become_one_and_no_answer_changes(scene, store):
    scene.fill()
    before = scene.answers()

    report = store.admin.compact(limits=NOW)

    assert (report.num_segments, report.num_removed, report.num_made, report.num_left) == (11, 11, 1, 0)
    assert len(scene.segments()) == store.redis.hlen(store.keys.segments) == 1
    assert report.findings == []
    assert scene.answers() == before
    assert store.admin.check().findings == []
    store.admin.reindex(drop=True)
    assert scene.answers() == before


def test_the_merged_segment_has_one_chunk_per_trajectory_and_each_record_once(scene, store, write):
    members = scene.fill()
    write(*scene.make_attempt(members[0])[0])
    once = sorted(set(scene.records()))

    store.admin.compact(limits=NOW)

    assert sorted(scene.records()) == once
    assert all(len(store.redis.hkeys(store.keys.chunks(member))) == 1 for member in members)


def test_a_second_run_finds_nothing_to_do(scene, store):
    scene.fill()
    store.admin.compact(limits=NOW)
    segments = scene.segments()

    report = store.admin.compact(limits=NOW)

    assert (report.num_removed, report.num_made) == (0, 0)
    assert scene.segments() == segments


def test_a_dry_run_says_what_would_be_done_and_does_nothing(scene, store):
    scene.fill()
    segments = scene.segments()

    report = store.admin.compact(limits=NOW, dry_run=True)

    assert (report.num_removed, report.num_made, report.dry_run) == (11, 1, True)
    assert scene.segments() == segments


def test_what_was_written_a_moment_ago_is_left_alone(scene, store):
    scene.fill()

    assert store.admin.compact().num_removed == 0


@pytest.mark.parametrize("only_dead", [True, False])
def test_no_byte_of_the_dead_is_left(scene, store, write, only_dead):
    scene.fill(4)
    for part in scene.make_attempt("y.0-0", text=SECRET):
        write(*part, *scene.make_attempt("y.1-0")[0])
    write(scene.make_group(f"of {SECRET}", "y.0-0"))
    assert list(scene.places(SECRET))
    scene.mark_deleted("y.0-0", f"group:of {SECRET}")
    before = scene.answers()

    report = store.admin.compact(limits=NOW, only_dead=only_dead)

    assert list(scene.places(SECRET)) == []
    assert list(scene.places("y.0-0")) == []
    assert (report.num_left, report.findings) == (0, [])
    assert scene.answers() == before
    assert store.admin.check().findings == []
    store.admin.reindex(drop=True)
    assert scene.answers() == before


def test_only_dead_leaves_segments_alone_in_which_nobody_died(scene, store, write):
    scene.fill()
    whole = set(scene.segments())
    write(*scene.make_attempt("y.0-0")[0], *scene.make_attempt("y.1-0")[0])
    scene.mark_deleted("y.0-0")

    assert store.admin.compact(limits=NOW, only_dead=True).num_removed == 1
    assert whole < set(scene.segments())


def test_the_dead_are_taken_out_of_the_lists_of_groups(scene, store, write):
    scene.fill(4)
    write(scene.make_group("mixed", "x.0-0", SECRET, "x.1-0"))
    for part in scene.make_attempt(SECRET):
        write(*part)
    scene.mark_deleted(SECRET)

    store.admin.compact(limits=NOW)

    assert list(scene.places(SECRET)) == []
    before = scene.answers()
    store.admin.reindex(drop=True)
    assert scene.answers() == before


def test_a_group_that_lost_all_of_its_members_is_dead_too(scene, store, write):
    write(scene.make_group("lost", "x.0-0", "x.1-0"), *scene.make_attempt("x.0-0")[0])
    scene.mark_deleted("x.0-0", "x.1-0")

    store.admin.compact(limits=NOW, only_dead=True)

    assert list(scene.records()) == scene.segments() == []
    assert not store.redis.exists(store.keys.group("lost"))
    store.admin.reindex(drop=True)
    assert not store.redis.exists(store.keys.group("lost"))


def test_half_dead_segments_are_rewritten_at_once_and_others_later(scene, store, write):
    limits = Limits(small_bytes=1, least_age_seconds=-1.0)
    mostly_dead = write(*scene.make_attempt("y.0-0")[1], *scene.make_attempt("x.0-0")[0][:1])
    mostly_alive = write(
        *scene.make_attempt("y.0-0")[0][:1], *[one for part in scene.make_attempt("x.1-0") for one in part]
    )
    scene.mark_deleted("y.0-0")

    assert store.admin.compact(limits=limits).num_removed == 1
    assert segment_key(store.keys, mostly_dead) not in scene.segments()
    assert segment_key(store.keys, mostly_alive) in scene.segments()

    later = Limits(small_bytes=1, least_age_seconds=-1.0, dead_seconds=-1.0)
    assert store.admin.compact(limits=later).num_removed == 1
    assert segment_key(store.keys, mostly_alive) not in scene.segments()


def test_a_segment_that_is_gone_is_named_and_the_others_are_merged(scene, store, write):
    scene.fill()
    gone = write(*scene.make_attempt("z.0-0")[0])
    store.objects.delete(segment_key(store.keys, gone))

    report = store.admin.compact(limits=NOW)

    assert [(one.kind, one.subject) for one in report.findings] == [("missing", gone)]
    assert report.num_removed == 11
