"""Every store's promises to its readers, over a directory and over S3."""

import math
import random

import msgspec
import pytest

from agent_layer.errors import BadInputError, NotFoundError
from agent_layer.schema.record import TokenIds
from agent_layer.schema.rollout import AttemptStarted, Group, Outcome
from agent_layer.schema.step import StepPart
from agent_layer.schema.training import PolicyVersion
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.segments.format import segment_key

from ..stored import lose_index


def test_what_was_written_is_read_back_whatever_segments_it_lies_in(store, write, make_attempt):
    records = make_attempt("x.0-0")
    shuffled = records[:]
    random.Random(7).shuffle(shuffled)
    write(*shuffled[:3], *make_attempt("y.0-0"))
    write(*shuffled[3:6])
    write(*shuffled[6:], *records[:2])

    trajectory = store.get("x.0-0")

    assert trajectory == assemble_trajectory("x.0-0", records)
    assert trajectory.steps[1].prompt_token_ids == TokenIds([1, 2, 3, 4, 5])
    assert store.step("x.0-0", 1) == trajectory.steps[1]


def test_a_row_says_what_the_records_say(store, write, make_attempt):
    write(*make_attempt("x.0-0", at=100.0, score=0.5, num_choices=2))

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
        "ended_at": "1970-01-01T00:01:47.000Z",
        "labels": {"k": "v"},
        "worker": None,
        "input_hash": None,
        "env": None,
        "env_version": None,
        "findings": [],
        "engines": [],
    }
    assert store.row("x.0-0") == row


def test_what_is_not_known_is_null(store, write):
    write(StepPart(trajectory_id="x.0-0", call_id="c", run="r", source="gateway", phase="start", at=5.0))

    [row] = store.query().items

    assert (row.trajectory_id, row.run, row.num_steps, row.accepted) == ("x.0-0", "r", 1, False)
    assert (row.reward, row.policy_min, row.status, row.task_id) == (None, None, None, None)


def test_an_unknown_trajectory_or_step_is_one_sentence(store, write, make_attempt):
    write(*make_attempt("x.0-0"))

    with pytest.raises(NotFoundError, match=r"trajectory 'z-0'.*'agent-layer query' lists"):
        store.get("z-0")
    with pytest.raises(NotFoundError, match="trajectory 'z-0'"):
        store.row("z-0")
    with pytest.raises(NotFoundError, match=r"step 2 of trajectory 'x\.0-0'.*which is 2"):
        store.step("x.0-0", 2)
    with pytest.raises(NotFoundError, match="step -1"):
        store.step("x.0-0", -1)


@pytest.mark.smoke
def test_the_index_comes_back_from_the_objects_alone_acceptance_included(store, write, make_attempt, collect_answers):
    write(PolicyVersion(run="r", number=0, location="w", created_at=1.0), *make_attempt("x.0-0"))
    write(*make_attempt("x.1-0", at=50.0)[:4], Group(group_id="g", run="r", task_id="t", closed_at=9.0))
    write(Group(group_id="h", run="r", task_id="t", closed_at=8.0, trajectory_ids=["x.0-0"]))
    before = collect_answers(store)

    lose_index(store)
    assert store.query().items == []
    report = store.admin.reindex()

    assert (report.num_segments, report.corrupt) == (3, [])
    assert collect_answers(store) == before
    assert [one.accepted for one in before[0]] == [True, False]
    assert [group.group_id for group, _ in before[2]] == ["h", "g"]


def test_reindexing_what_is_indexed_changes_nothing(store, write, make_attempt, collect_answers):
    write(*make_attempt("x.0-0"), Group(group_id="g", run="r", task_id="t", closed_at=9.0, trajectory_ids=["x.0-0"]))
    before = collect_answers(store)

    store.admin.reindex()

    assert collect_answers(store) == before


def test_dropping_first_forgets_what_no_segment_says_but_no_acknowledgement(store, write, make_attempt):
    write(*make_attempt("x.0-0"), Group(group_id="g", run="r", task_id="t", closed_at=9.0, trajectory_ids=["x.0-0"]))
    gone = write(*make_attempt("y.0-0"))
    for delivery in store.follow("c", "r", wait_seconds=0):
        delivery.ack()
    store.objects.delete(segment_key(store.keys, gone))
    progress = []

    store.admin.reindex(drop=True, progress=lambda num_done, num_all: progress.append((num_done, num_all)))

    assert [row.trajectory_id for row in store.query().items] == ["x.0-0"]
    assert list(store.follow("c", "r", wait_seconds=0)) == []
    assert progress == [(1, 1)]


def test_a_namespace_that_is_done_with_leaves_redis_and_comes_back(store, write, make_attempt, collect_answers):
    write(*make_attempt("x.0-0"), Group(group_id="g", run="r", task_id="t", closed_at=9.0, trajectory_ids=["x.0-0"]))
    before = collect_answers(store)

    assert store.admin.offload() == 1
    assert store.query().items == []
    assert [key for key in store.redis.keys(store.keys.name("*")) if b":t:" in key or b":b:" in key] == []

    store.admin.reindex()
    assert collect_answers(store) == before


def test_a_namespace_in_which_something_goes_on_stays(store, write, make_attempt):
    write(*make_attempt("x.0-0")[:4])

    with pytest.raises(BadInputError, match="still active, with 1 running trajectories"):
        store.admin.offload()


@pytest.mark.parametrize("at", [math.nan, math.inf, -math.inf, -5.0, 1e18])
def test_a_broken_clock_spoils_no_search_and_no_commit(store, write, at):
    own = {"trajectory_id": "r.0-0", "run": "run"}
    started = AttemptStarted(**own, rollout_id="r.0", attempt=0, task_id="t", started_at=at)
    ended = Outcome(**own, status="completed", ended_at=at)
    write(started, ended, Group(group_id="g", run="run", task_id="t", closed_at=at))

    [row] = store.query().items

    assert (row.trajectory_id, row.status) == ("r.0-0", "completed")
    assert store.redis.zcard(store.keys.closed_groups("run")) == 1
