"""This file holds what every store promises its readers, over a directory and over S3."""

import random

import msgspec
import pytest

from agent_layer.errors import BadInputError, CorruptRecordError, NotFoundError
from agent_layer.schema.group import Group
from agent_layer.schema.policy import PolicyVersion
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.reward import Reward
from agent_layer.schema.rollout import Accepted, AttemptStarted, Outcome
from agent_layer.schema.step import Action, Content, PromptDelta, StepPart
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.policies import list_policies
from agent_layer.store.segments import segment_key


def attempt_of(tid, at=100.0, score=1.0, run="r", num_choices=1):
    """Everything that one accepted attempt with two calls leaves behind."""
    own = {"trajectory_id": tid, "run": run}
    rollout = {"rollout_id": tid.rpartition("-")[0], "group_id": "g"}
    answer = Action(response_token_ids=TokenIds([3, 4]), logprobs=Logprobs([-0.5, -1.0]), policy_versions=[(4, 2)])
    later = Action(response_token_ids=TokenIds([6]), logprobs=Logprobs([-2.0]), policy_versions=[(5, 1)])
    follow_up = PromptDelta(delta=TokenIds([5]), parent_call=f"{tid}/a", prefix_length=4)
    part = {**own, "source": "gateway", "agent": "solver"}
    return [
        AttemptStarted(**own, **rollout, attempt=0, task_id="t", task_type="math", started_at=at, labels={"k": "v"}),
        StepPart(**part, call_id=f"{tid}/a", phase="start", at=at + 1, prompt=PromptDelta(delta=TokenIds([1, 2]))),
        StepPart(**part, call_id=f"{tid}/a", phase="end", at=at + 2, actions=[answer], status="ok"),
        Content(trajectory_id=tid, hash="h", body=b'"state"'),
        StepPart(**part, call_id=f"{tid}/b", phase="start", at=at + 3, prompt=follow_up),
        StepPart(**part, call_id=f"{tid}/b", phase="end", at=at + 4, actions=[later] * num_choices, status="ok"),
        Reward(**own, reward_id=f"{tid}/r", at=at + 5, score=score),
        Outcome(**own, status="completed", ended_at=at + 6, num_calls=2),
        Accepted(**own, **rollout, accepted_at=at + 7),
    ]


def answers(store):
    """What the store says about everything, for comparing."""
    page = store.query(limit=1_000)
    return (
        page.items,
        {row.trajectory_id: store.get(row.trajectory_id) for row in page.items},
        [(one.group, [t.trajectory_id for t in one.trajectories]) for one in store.follow("new", "r", wait_seconds=0)],
        list_policies(store.redis, store.keys, "r"),
    )


def lose_index(store):
    """What FLUSHALL does, for the keys of one test."""
    store.redis.delete(*store.redis.keys(store.keys.name("*")))


def test_what_was_written_is_read_back_whatever_segments_it_lies_in(store, write):
    records = attempt_of("x.0-0")
    shuffled = records[:]
    random.Random(7).shuffle(shuffled)
    write(*shuffled[:3], *attempt_of("y.0-0"))
    write(*shuffled[3:6])
    write(*shuffled[6:], *records[:2])

    trajectory = store.get("x.0-0")

    assert trajectory == assemble_trajectory("x.0-0", records)
    assert trajectory.steps[1].prompt_token_ids == TokenIds([1, 2, 3, 4, 5])
    assert store.step("x.0-0", 1) == trajectory.steps[1]


def test_a_row_says_what_the_records_say(store, write):
    write(*attempt_of("x.0-0", at=100.0, score=0.5, num_choices=2))

    [row] = store.query().items

    assert msgspec.structs.asdict(row) == {
        "trajectory_id": "x.0-0",
        "rollout_id": "x.0",
        "attempt": 0,
        "task_id": "t",
        "task_type": "math",
        "run": "r",
        "split": "train",
        "group_id": "g",
        "status": "completed",
        "cause": None,
        "accepted": True,
        "reward": 0.5,
        "num_steps": 3,
        "policy_min": 4,
        "policy_max": 5,
        "agents": ["solver"],
        "tools": [],
        "started_at": "1970-01-01T00:01:40.000Z",
        "ended_at": "1970-01-01T00:01:46.000Z",
        "labels": {"k": "v"},
        "worker": None,
        "input_hash": None,
        "env": None,
        "env_version": None,
    }
    assert store.row("x.0-0") == row


def test_what_is_not_known_is_null(store, write):
    write(StepPart(trajectory_id="x.0-0", call_id="c", run="r", source="hook", phase="start", at=5.0))

    [row] = store.query().items

    assert (row.trajectory_id, row.run, row.num_steps, row.accepted) == ("x.0-0", "r", 1, False)
    assert (row.reward, row.policy_min, row.status, row.task_id) == (None, None, None, None)


def test_an_unknown_trajectory_or_step_is_one_sentence(store, write):
    write(*attempt_of("x.0-0"))

    with pytest.raises(NotFoundError, match=r"trajectory 'z-0'.*'agent-layer query' lists"):
        store.get("z-0")
    with pytest.raises(NotFoundError, match="trajectory 'z-0'"):
        store.row("z-0")
    with pytest.raises(NotFoundError, match=r"step 2 of trajectory 'x\.0-0'.*which is 2"):
        store.step("x.0-0", 2)
    with pytest.raises(NotFoundError, match="step -1"):
        store.step("x.0-0", -1)


def test_the_index_comes_back_from_the_objects_alone_acceptance_included(store, write):
    write(PolicyVersion(run="r", number=0, location="w", created_at=1.0), *attempt_of("x.0-0"))
    write(*attempt_of("x.1-0", at=50.0)[:4], Group(group_id="g", run="r", task_id="t", closed_at=9.0))
    write(Group(group_id="h", run="r", task_id="t", closed_at=8.0, trajectory_ids=["x.0-0"]))
    before = answers(store)

    lose_index(store)
    assert store.query().items == []
    report = store.reindex()

    assert (report.num_segments, report.corrupt) == (3, [])
    assert answers(store) == before
    assert [one.accepted for one in before[0]] == [True, False]
    assert [group.group_id for group, _ in before[2]] == ["h", "g"]


def test_reindexing_what_is_indexed_changes_nothing(store, write):
    write(*attempt_of("x.0-0"), Group(group_id="g", run="r", task_id="t", closed_at=9.0, trajectory_ids=["x.0-0"]))
    before = answers(store)

    store.reindex()

    assert answers(store) == before


def test_dropping_first_forgets_what_no_segment_says_but_no_acknowledgement(store, write):
    write(*attempt_of("x.0-0"), Group(group_id="g", run="r", task_id="t", closed_at=9.0, trajectory_ids=["x.0-0"]))
    gone = write(*attempt_of("y.0-0"))
    for delivery in store.follow("c", "r", wait_seconds=0):
        delivery.ack()
    store.objects.delete(segment_key(store.keys, gone))
    progress = []

    store.reindex(drop=True, progress=lambda num_done, num_all: progress.append((num_done, num_all)))

    assert [row.trajectory_id for row in store.query().items] == ["x.0-0"]
    assert list(store.follow("c", "r", wait_seconds=0)) == []
    assert progress == [(1, 1)]


def test_a_segment_with_a_torn_end_is_quarantined_and_what_is_whole_of_it_is_served(store, put):
    good, bad = put(*attempt_of("x.0-0")), put(*attempt_of("y.0-0"))
    key = segment_key(store.keys, bad)
    store.objects.put(key, store.objects.get(key)[:-30])

    report = store.reindex()

    assert {row.trajectory_id for row in store.query().items} == {"x.0-0", "y.0-0"}
    assert store.get("y.0-0") == assemble_trajectory("y.0-0", attempt_of("y.0-0"))
    assert len(report.corrupt) == 1
    assert bad in report.corrupt[0]
    assert good not in report.corrupt[0]
    assert list(store.quarantine()) == [bad]


def test_a_segment_of_which_nothing_is_whole_is_quarantined_and_the_others_are_served(store, put):
    put(*attempt_of("x.0-0"))
    bad = put(*attempt_of("y.0-0"))
    store.objects.put(segment_key(store.keys, bad), b"x" * 1000)

    report = store.reindex()

    assert [row.trajectory_id for row in store.query().items] == ["x.0-0"]
    assert bad in report.corrupt[0]
    assert bad in store.quarantine()


def test_a_segment_that_is_restored_leaves_quarantine(store, put):
    bad = put(*attempt_of("y.0-0"))
    whole = store.objects.get(segment_key(store.keys, bad))
    damage(store, bad)
    assert [one.subject for one in store.check().findings if one.kind == "corrupt"] == [bad]
    assert bad in store.quarantine()

    store.objects.put(segment_key(store.keys, bad), whole)

    assert store.check(repair=True).is_sound
    assert store.quarantine() == {}


def test_corrupt_bytes_are_never_given_out(store, write):
    damage(store, write(*attempt_of("x.0-0")))

    with pytest.raises(CorruptRecordError):
        store.get("x.0-0")


def test_a_sound_store_has_no_findings(store, write):
    write(*attempt_of("x.0-0"), PolicyVersion(run="r:1", number=0, location="w", created_at=1.0))
    write(*attempt_of("x.1-0"), Group(group_id="g:h", run="r", task_id="t", closed_at=9.0))

    report = store.check()

    assert (report.num_segments, report.num_trajectories, report.findings) == (2, 2, [])
    assert report.is_sound


def test_what_is_shipped_during_a_check_is_not_missing(store, write):
    write(*attempt_of("x.0-0"))

    report = store.check(progress=lambda *_: write(*attempt_of("y.0-0")))

    assert (report.num_trajectories, report.findings) == (2, [])


def test_a_segment_that_is_not_indexed_is_found_and_indexed(store, write, put):
    write(*attempt_of("x.0-0"))
    put(*attempt_of("y.0-0"))

    report = store.check(repair=True)

    assert [one.kind for one in report.findings] == ["unindexed"]
    assert report.is_sound
    assert store.get("y.0-0").accepted
    assert store.check().findings == []


@pytest.mark.parametrize(
    "lost", ["t:x.0-0", "t:x.0-0:chunks", "t:x.0-0:calls", "t:x.0-0:rewards", "group:g", "policies:r", "segments"]
)
def test_an_entry_that_the_index_lost_is_found_and_restored(store, write, lost):
    policy = PolicyVersion(run="r", number=0, location="w", created_at=1.0)
    write(*attempt_of("x.0-0"), Group(group_id="g", run="r", task_id="t", closed_at=9.0), policy)
    before = answers(store)
    store.redis.delete(store.keys.name(lost))

    report = store.check(repair=True)

    assert [one.kind for one in report.findings] == ["unindexed"]
    assert answers(store) == before


def test_bytes_that_are_gone_are_found_and_forgotten(store, write):
    write(*attempt_of("x.0-0"))
    store.objects.delete(segment_key(store.keys, write(*attempt_of("y.0-0"))))

    report = store.check(repair=True)

    assert {(one.kind, one.subject == "y.0-0") for one in report.findings} == {
        ("missing", True),
        ("missing", False),
    }
    assert [row.trajectory_id for row in store.query().items] == ["x.0-0"]
    assert store.check().is_sound


def test_corruption_is_found_and_cannot_be_mended(store, write):
    damage(store, write(*attempt_of("x.0-0")))

    report = store.check(repair=True)

    assert [one.kind for one in report.findings] == ["corrupt"]
    assert not report.is_sound


@pytest.mark.parametrize("missing", [2, 4, slice(4, 6)])
def test_an_accepted_attempt_that_lacks_calls_is_named(store, write, missing):
    records = attempt_of("x.0-0")
    del records[missing]
    write(*records, *attempt_of("y.0-0"))

    report = store.check(repair=True)

    assert [(one.kind, one.subject) for one in report.findings] == [("short", "x.0-0")]
    assert "accepted with 2 calls" in report.findings[0].detail
    assert not report.is_sound


def test_an_attempt_that_does_not_count_may_lack_calls(store, write):
    write(*attempt_of("x.0-0")[:4])

    assert store.check().is_sound


def damage(store, name):
    """Flip one bit of the first chunk, behind its frame header."""
    key = segment_key(store.keys, name)
    content = bytearray(store.objects.get(key))
    content[20] ^= 1
    store.objects.put(key, bytes(content))


def test_a_namespace_that_is_done_with_leaves_redis_and_comes_back(store, write):
    write(*attempt_of("x.0-0"), Group(group_id="g", run="r", task_id="t", closed_at=9.0, trajectory_ids=["x.0-0"]))
    before = answers(store)

    assert store.cool() == 1
    assert store.query().items == []
    assert [key for key in store.redis.keys(store.keys.name("*")) if b":t:" in key or b":b:" in key] == []

    store.reindex()
    assert answers(store) == before


def test_a_namespace_in_which_something_goes_on_stays(store, write):
    write(*attempt_of("x.0-0")[:4])

    with pytest.raises(BadInputError, match="found 1 trajectories that run"):
        store.cool()
