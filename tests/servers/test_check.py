"""Damage to index or objects is found, named, repaired and never served."""

import pytest

from agent_layer.errors import CorruptRecordError
from agent_layer.schema.rollout import Group
from agent_layer.schema.training import PolicyVersion
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.segments.format import segment_key


def test_a_segment_with_a_torn_end_is_quarantined_and_what_is_whole_of_it_is_served(store, put, make_attempt):
    good, bad = put(*make_attempt("x.0-0")), put(*make_attempt("y.0-0"))
    key = segment_key(store.keys, bad)
    store.objects.put(key, store.objects.get(key)[:-30])

    report = store.admin.reindex()

    assert {row.trajectory_id for row in store.query().items} == {"x.0-0", "y.0-0"}
    assert store.get("y.0-0") == assemble_trajectory("y.0-0", make_attempt("y.0-0"))
    assert len(report.corrupt) == 1
    assert bad in report.corrupt[0]
    assert good not in report.corrupt[0]
    assert list(store.admin.quarantine()) == [bad]


def test_a_segment_of_which_nothing_is_whole_is_quarantined_and_the_others_are_served(store, put, make_attempt):
    put(*make_attempt("x.0-0"))
    bad = put(*make_attempt("y.0-0"))
    store.objects.put(segment_key(store.keys, bad), b"x" * 1000)

    report = store.admin.reindex()

    assert [row.trajectory_id for row in store.query().items] == ["x.0-0"]
    assert bad in report.corrupt[0]
    assert bad in store.admin.quarantine()


def test_a_segment_that_is_restored_leaves_quarantine(store, put, make_attempt):
    bad = put(*make_attempt("y.0-0"))
    whole = store.objects.get(segment_key(store.keys, bad))
    damage(store, bad)
    assert [one.subject for one in store.admin.check().findings if one.kind == "corrupt"] == [bad]
    assert bad in store.admin.quarantine()

    store.objects.put(segment_key(store.keys, bad), whole)

    assert store.admin.check(repair=True).is_sound
    assert store.admin.quarantine() == {}


def test_what_others_put_beside_tombstones_is_passed_over(store, write, make_attempt):
    write(*make_attempt("x.0-0"), *make_attempt("y.0-0"))
    store.delete("x.0-0")
    store.objects.put(f"{store.keys.namespace}/dead/notes.txt", b"not ours")

    store.admin.reindex(drop=True)

    assert store.admin.check().findings == []
    assert [row.trajectory_id for row in store.query().items] == ["y.0-0"]


def test_a_sound_store_has_no_findings(store, write, make_attempt):
    write(*make_attempt("x.0-0"), PolicyVersion(run="r:1", number=0, location="w", created_at=1.0))
    write(*make_attempt("x.1-0"), Group(group_id="g:h", run="r", task_id="t", closed_at=9.0))

    report = store.admin.check()

    assert (report.num_segments, report.num_trajectories, report.findings) == (2, 2, [])
    assert report.is_sound


def test_what_is_shipped_during_a_check_is_not_missing(store, write, make_attempt):
    write(*make_attempt("x.0-0"))

    report = store.admin.check(progress=lambda *_: write(*make_attempt("y.0-0")))

    assert (report.num_trajectories, report.findings) == (2, [])


def test_a_segment_that_is_not_indexed_is_found_and_indexed(store, write, put, make_attempt):
    write(*make_attempt("x.0-0"))
    put(*make_attempt("y.0-0"))

    report = store.admin.check(repair=True)

    assert [one.kind for one in report.findings] == ["unindexed"]
    assert report.is_sound
    assert store.get("y.0-0").accepted
    assert store.admin.check().findings == []


@pytest.mark.parametrize(
    "lost", ["t:x.0-0", "t:x.0-0:chunks", "t:x.0-0:calls", "t:x.0-0:rewards", "group:g", "policies:r", "segments"]
)
def test_an_entry_that_the_index_lost_is_found_and_restored(store, write, lost, make_attempt, collect_answers):
    policy = PolicyVersion(run="r", number=0, location="w", created_at=1.0)
    write(*make_attempt("x.0-0"), Group(group_id="g", run="r", task_id="t", closed_at=9.0), policy)
    before = collect_answers(store)
    store.redis.delete(store.keys.name(lost))

    report = store.admin.check(repair=True)

    assert report.findings[0].kind == "unindexed"
    assert collect_answers(store) == before


def test_bytes_that_are_gone_are_found_and_forgotten(store, write, make_attempt):
    write(*make_attempt("x.0-0"))
    store.objects.delete(segment_key(store.keys, write(*make_attempt("y.0-0"))))

    report = store.admin.check(repair=True)

    assert {(one.kind, one.subject == "y.0-0") for one in report.findings} == {
        ("missing", True),
        ("missing", False),
    }
    assert [row.trajectory_id for row in store.query().items] == ["x.0-0"]
    assert store.admin.check().is_sound


def test_corruption_is_found_and_cannot_be_mended(store, write, make_attempt):
    damage(store, write(*make_attempt("x.0-0")))

    report = store.admin.check(repair=True)

    assert [one.kind for one in report.findings] == ["corrupt"]
    assert not report.is_sound


@pytest.mark.parametrize("missing", [2, 4, slice(4, 6)])
def test_an_accepted_attempt_that_lacks_calls_is_named(store, write, missing, make_attempt):
    records = make_attempt("x.0-0")
    del records[missing]
    write(*records, *make_attempt("y.0-0"))

    report = store.admin.check(repair=True)

    assert [(one.kind, one.subject) for one in report.findings] == [("short", "x.0-0")]
    assert "accepted with 2 calls" in report.findings[0].detail
    assert not report.is_sound


def test_an_attempt_that_does_not_count_may_lack_calls(store, write, make_attempt):
    write(*make_attempt("x.0-0")[:4])

    assert store.admin.check().is_sound


def test_corrupt_bytes_are_never_given_out(store, write, make_attempt):
    damage(store, write(*make_attempt("x.0-0")))

    with pytest.raises(CorruptRecordError):
        store.get("x.0-0")


def damage(store, name):
    """Flip one bit of the first chunk, behind its frame header."""
    key = segment_key(store.keys, name)
    content = bytearray(store.objects.get(key))
    content[20] ^= 1
    store.objects.put(key, bytes(content))
