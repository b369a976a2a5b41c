"""``store check`` names decisions that contradict each other, and says what to do; a deletion ends it."""

import pytest

from agent_layer.schema.codec import encode
from agent_layer.schema.ids import new_id
from agent_layer.schema.training import ExcludedRollout, TrainedBatch, TrainedRollout
from agent_layer.store import open_store
from agent_layer.store.maintenance.merge_plan import Limits
from agent_layer.store.segments.format import StoredRecord, build_segment, segment_key

from ...builders import attempt, closed_group
from ...stored import lose_index, put_segment, write_segment


@pytest.fixture
def store(settings):
    return open_store(settings)


def trained(step, *trajectory_ids):
    rollouts = [
        TrainedRollout(trajectory_id=one, group_id="g", reward=1.0, reward_ids=[], samples_hash="s")
        for one in trajectory_ids
    ]
    own = {"run": "r", "batch_id": f"b{step}", "step": step, "policy_version": 0, "trained_at": 9.0}
    return TrainedBatch(**own, rollouts=rollouts, num_samples=1, batch_hash="h")


def accepted(*trajectory_ids):
    return [record for one in trajectory_ids for record in attempt(one, group_id="g")]


SOUND = [*accepted("g.0-0", "g.1-2"), *attempt("g.1-0", status="lost", group_id="g")]
GROUP = closed_group("g", "g.0-0", "g.1-2")
CASES = {
    "two attempts": ([[*SOUND, *accepted("g.1-1"), GROUP]], [("doubled", "g.1", "store delete g.1-1")]),
    "two attempts, no group": ([[*accepted("g.1-1")], [*SOUND]], [("doubled", "g.1", "store delete g.1-2")]),
    "two attempts in other segments": (
        [[*SOUND, GROUP], [*accepted("g.1-3")]],
        [("doubled", "g.1", "its group counts g.1-2, so delete 'agent-layer store delete g.1-3'")],
    ),
    "two memberships": (
        [[*SOUND, *accepted("g.2-0")], [GROUP], [closed_group("g", "g.0-0", "g.2-0", num_usable=2)]],
        [("regrouped", "g", "g.0-0, g.1-2 and g.0-0, g.2-0")],
    ),
    "a larger membership": (
        [[*SOUND, *accepted("g.2-0"), GROUP], [closed_group("g", "g.0-0", "g.1-2", "g.2-0")]],
        [("regrouped", "g", "store delete")],
    ),
    "a group of what was not accepted": (
        [[*SOUND], [closed_group("g", "g.0-0", "g.1-0")]],
        [("unaccepted", "g", "names g.1-0, which was not accepted, so no consumer can get it")],
    ),
    "a group of what is not there": (
        [[*SOUND], [closed_group("g", "g.0-0", "g.8-0", "g.9-0")]],
        [("unaccepted", "g", "g.8-0, g.9-0, which were not accepted")],
    ),
    "an accepted attempt without its group": (
        [[*SOUND], [GROUP], [*accepted("g.2-0")]],
        [("ungrouped", "g.2-0", "its group g does not name it, so no consumer gets it")],
    ),
    "a batch of what was not accepted": (
        [[*SOUND, GROUP], [trained(3, "g.0-0", "g.1-0")]],
        [("unaccepted", "r:3", "learned from g.1-0, which was not accepted; replay cannot repeat it: continue from a")],
    ),
    "an entry of a ledger": (
        [[*SOUND, GROUP], [ExcludedRollout(trajectory_id="g.1-0", kind="greedy", reason="", run="r", step=1, at=9.0)]],
        [("unaccepted", "g.1-0", "delete it, or continue from a checkpoint before its step")],
    ),
}


@pytest.mark.parametrize("is_rebuilt", [False, True], ids=["live", "rebuilt"])
@pytest.mark.parametrize("case", CASES)
def test_a_contradiction_is_named_once_with_what_to_do(store, case, is_rebuilt):
    segments, expected = CASES[case]
    for records in segments:
        (put_segment if is_rebuilt else write_segment)(store, *records)

    report = store.admin.check(repair=is_rebuilt)

    found = [one for one in report.findings if one.kind != "unindexed"]
    assert [(one.kind, one.subject) for one in found] == [(kind, subject) for kind, subject, _ in expected]
    assert [part for one, (_, _, part) in zip(found, expected, strict=True) if part not in one.detail] == [], found
    assert not report.is_sound


@pytest.mark.parametrize(
    "segments",
    [
        [[*SOUND, GROUP, trained(1, "g.0-0", "g.1-2")]],
        [[*SOUND], [GROUP], [GROUP]],  # a decision that was shipped twice
        [[*SOUND, *attempt("g.10-0"), *attempt("g.1-10-0"), GROUP]],
        [[*SOUND, closed_group("g", fill="dropped")]],
        [[*SOUND]],  # its group has not closed
    ],
)
def test_what_agrees_is_not_named(store, segments):
    for records in segments:
        write_segment(store, *records)

    assert store.admin.check().findings == []


@pytest.mark.parametrize(
    ("case", "surplus"),
    [
        ("two attempts", "g.1-1"),
        ("two memberships", "g.2-0"),
        ("an accepted attempt without its group", "g.2-0"),
        ("a batch of what was not accepted", "g.1-0"),
    ],
)
def test_deleting_what_is_too_much_ends_the_contradiction(store, case, surplus):
    for records in CASES[case][0]:
        write_segment(store, *records)

    store.delete(surplus)

    assert store.admin.check().findings == []
    lose_index(store)
    store.admin.reindex()
    store.admin.compact(limits=Limits(least_age_seconds=0.0))
    assert store.admin.check().findings == []


def test_an_index_that_lacks_a_segment_is_blamed_before_a_decision(store):
    put_segment(store, *SOUND)
    write_segment(store, GROUP, trained(1, "g.0-0"))

    assert {one.kind for one in store.admin.check().findings} == {"unindexed"}


def plant(store, owner, *records):
    """Store records under an owner of any name."""
    name = new_id()
    content, _ = build_segment(name, {owner: [StoredRecord(one, encode(one)) for one in records]})
    store.objects.put(segment_key(store.keys, name), content)
    return name


def test_a_trajectory_under_the_name_of_a_group_is_named_and_read(store):
    plant(store, "group:x.0-0", *attempt("group:x.0-0"))
    store.admin.reindex()

    report = store.admin.check()

    assert [one.kind for one in report.findings] == ["misnamed"]
    assert "'group:x.0-0' under the name of another kind" in report.findings[0].detail
    assert report.is_sound
    for name in ("group:y.0-0", "group:z.0-0"):
        plant(store, name, *attempt(name))
    store.admin.reindex()
    store.admin.compact(limits=Limits(least_age_seconds=0.0))
    assert store.admin.check().findings == []
    assert {row.trajectory_id for row in store.query().items} == {"group:x.0-0", "group:y.0-0", "group:z.0-0"}


@pytest.mark.parametrize(
    ("owner", "record"),
    [("group:g", attempt("x.0-0")), ("x.0-0", [closed_group("g", "x.0-0")]), ("y.0-0", attempt("x.0-0"))],
)
def test_records_under_an_owner_of_the_wrong_kind_are_named_and_what_is_whole_is_served(store, owner, record):
    name = plant(store, owner, *record)

    (finding,) = store.admin.check().findings

    assert (finding.kind, finding.subject) == ("corrupt", name)
    assert "under an owner of another kind" in finding.detail
    assert store.admin.reindex().corrupt
    if owner != "x.0-0":
        assert store.get("x.0-0").accepted
