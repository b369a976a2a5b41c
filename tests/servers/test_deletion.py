"""Deletion: no search finds the trajectory, nothing restores it, and no object contains a byte of it."""

import pytest
import zstandard

from agent_layer.errors import BadInputError, NotFoundError
from agent_layer.recorder.frames import unframe
from agent_layer.schema.step import Action, Content
from agent_layer.schema.task import Task
from agent_layer.schema.training import PolicyVersion, TrainedBatch, TrainedRollout
from agent_layer.store.consumers.trained_batches import list_batches
from agent_layer.store.segments.format import find_frames, segment_key

from ..builders import attempt, call, closed_group, content

SECRET = b"what nobody may read any more"


def make_attempt(tid, task="task-one", user="user-seven", *, text=SECRET, group="g", ended=True):
    """An accepted attempt whose words, task, label and answer can be searched for."""
    words = text.decode()
    answer = Action(message={"role": "assistant", "content": words}, policy_versions=[(1, 1)])
    about = {"task_id": task, "labels": {"user": user}, "task": Task(id=task, run="r", input=words)}
    status = "completed" if ended else "running"
    parts = [*call(tid, "a", answer, agent="solver"), content(tid, text)]
    return attempt(tid, *parts, score=1.0, status=status, group_id=group, **about)


def make_group(*trajectory_ids, group_id="g", task="task-one"):
    return closed_group(group_id, *trajectory_ids, task_id=task)


def make_batch(*trajectory_ids, step=1):
    """What a step learned from; the task's name stands in an id, as it may."""
    rollouts = [
        TrainedRollout(
            trajectory_id=tid, group_id=f"group-of-{tid}", reward=1.0, reward_ids=[f"{tid}/r"], samples_hash="s"
        )
        for tid in trajectory_ids
    ]
    own = {"run": "r", "batch_id": f"b{step}", "step": step, "policy_version": 0, "trained_at": 10.0 + step}
    return TrainedBatch(**own, rollouts=rollouts, num_samples=len(rollouts), batch_hash="h")


def named_in_batches(store):
    """Of each step of the run: which trajectories it names, and how many it does not name any more."""
    batches = list_batches(store.redis, store.keys, "r")
    return [([one.trajectory_id for one in batch.rollouts], batch.num_deleted) for batch in batches]


def found_in_bucket(store, *needles):
    """Which of the needles occur in any object, in its raw bytes or in one of its frames unpacked."""
    found = set()
    for key in store.objects.list(""):
        content = store.objects.get(key)
        frames = [unframe(content, offset) for offset, _ in find_frames(content)]
        unpacked = [
            zstandard.ZstdDecompressor().decompress(one) if key.endswith(".seg") else one for one in frames if one
        ]
        found |= {needle for needle in needles for one in (key.encode(), content, *unpacked) if needle in one}
    return found


def ids(store, **filters):
    return sorted(row.trajectory_id for row in store.query(limit=100, **filters).items)


EVERYTHING = (SECRET, b"task-one", b"user-seven", b"x.0-0")


@pytest.mark.parametrize(
    "meant", [{"task": "task-one"}, {"labels": {"user": "user-seven"}}, {"task": "task-one", "run": "r"}]
)
def test_a_search_of_the_bucket_finds_no_byte_of_what_was_deleted(store, write, meant):
    write(*make_attempt("x.0-0")[:3], *make_attempt("y.0-0", "task-two", "user-eight", text=b"harmless", group="h")[:4])
    write(*make_attempt("x.0-0")[3:], *make_attempt("y.0-0", "task-two", "user-eight", text=b"harmless", group="h")[4:])
    write(make_group("x.0-0"), make_group("y.0-0", group_id="h", task="task-two"))
    write(make_batch("x.0-0", "y.0-0"), make_batch("y.0-0", step=2))
    write(make_batch("x.0-0", step=3))
    assert found_in_bucket(store, *EVERYTHING) == set(EVERYTHING)

    report = store.delete(**meant)

    assert found_in_bucket(store, *EVERYTHING, b"harmless") == {b"harmless"}
    assert (report.num_trajectories, report.num_groups, report.num_segments_to_rewrite) == (1, 1, 5)
    assert (report.num_segments_left, report.num_running, report.open_groups) == (0, 0, [])
    assert report.num_bytes > 0
    assert ids(store) == ["y.0-0"]
    assert store.get("y.0-0").accepted
    assert named_in_batches(store) == [(["y.0-0"], 1), (["y.0-0"], 0), ([], 1)]
    assert store.admin.check().findings == []
    assert not any(b"x.0-0" in record for record in store.redis.hvals(store.keys.batches("r")))


def test_one_trajectory_is_deleted_by_its_id(store, write):
    write(*make_attempt("x.0-0"), *make_attempt("y.0-0", group="h"))

    assert store.delete("x.0-0").num_trajectories == 1

    assert ids(store) == ["y.0-0"]
    with pytest.raises(NotFoundError, match=r"x\.0-0"):
        store.get("x.0-0")
    assert found_in_bucket(store, b"x.0-0", b"y.0-0") == {b"y.0-0"}
    assert store.delete("x.0-0").num_trajectories == 0, "once more does no harm"


def test_a_trajectory_of_which_only_contents_are_stored_is_deleted_too(store, write):
    write(Content(trajectory_id="x.0-0", hash="h", body=SECRET))

    assert store.delete("x.0-0").num_trajectories == 1

    assert found_in_bucket(store, SECRET, b"x.0-0") == set()


@pytest.mark.parametrize(
    ("wanted", "filters"), [(None, {}), (None, {"task": None, "labels": {}}), ("x.0-0", {"task": "task-one"})]
)
def test_a_condition_is_needed_and_only_one(store, write, wanted, filters):
    write(*make_attempt("x.0-0"))

    with pytest.raises(BadInputError, match="either a trajectory id or at least one filter"):
        store.delete(wanted, **filters)

    assert ids(store) == ["x.0-0"]


def test_a_trajectory_that_never_was_is_no_success(store):
    with pytest.raises(NotFoundError, match="'nobody'"):
        store.delete("nobody")


def test_a_dry_run_changes_nothing_and_counts_the_same(store, write):
    write(*make_attempt("x.0-0"), make_group("x.0-0"))
    objects = list(store.objects.list(""))

    shown = store.delete(task="task-one", dry_run=True)

    assert ids(store) == ["x.0-0"]
    assert list(store.objects.list("")) == objects
    assert store.redis.scard(store.keys.rewrite) == 0
    done = store.delete(task="task-one")
    assert shown.dry_run
    assert not done.dry_run
    assert (shown.num_trajectories, shown.num_bytes) == (done.num_trajectories, done.num_bytes)
    assert (shown.num_groups, shown.num_segments_to_rewrite) == (done.num_groups, done.num_segments_to_rewrite)


def test_bytes_may_stay_until_the_next_purge(store, write):
    write(*make_attempt("x.0-0"))

    assert store.delete("x.0-0", purge=False).num_segments_left == 1
    assert ids(store) == []
    assert SECRET in found_in_bucket(store, SECRET)

    assert store.delete("x.0-0").num_segments_left == 0
    assert found_in_bucket(store, SECRET) == set()


def test_a_group_of_which_somebody_lives_is_delivered_without_the_dead(store, write):
    write(*make_attempt("x.0-0"), *make_attempt("x.1-0", user="user-eight"), make_group("x.0-0", "x.1-0"))

    assert store.delete(labels={"user": "user-seven"}).num_groups == 0

    (delivery,) = store.follow("c", "r", wait_seconds=0)
    assert [one.trajectory_id for one in delivery.trajectories] == ["x.1-0"]

    assert store.delete(labels={"user": "user-eight"}).num_groups == 1, "its other member had died before"
    assert list(store.follow("another", "r", wait_seconds=0)) == []


def test_a_group_without_members_lives_as_long_as_an_attempt_of_it(store, write):
    write(*make_attempt("x.0-0", ended=False), *make_attempt("x.1-0", user="user-eight", ended=False), make_group())

    assert store.delete(labels={"user": "user-seven"}).num_groups == 0
    assert store.delete(labels={"user": "user-eight"}).num_groups == 1


def test_a_task_takes_its_groups_with_it_even_those_without_any_attempt(store, write):
    write(make_group(), make_group(group_id="h", task="task-two"), *make_attempt("y.0-0", "task-two", group="h"))

    report = store.delete(task="task-one")

    assert (report.num_trajectories, report.num_groups) == (0, 1)
    assert found_in_bucket(store, b"task-one", b"task-two") == {b"task-two"}


def test_what_an_attempt_that_runs_says_later_is_dropped(store, write):
    write(*make_attempt("x.0-0", ended=False))

    assert store.delete("x.0-0").num_running == 1
    write(*make_attempt("x.0-0"))

    assert ids(store) == []
    store.delete("x.0-0")
    assert found_in_bucket(store, SECRET) == set()


def test_neither_a_replay_nor_a_rebuild_brings_the_dead_back(store, write):
    records = [*make_attempt("x.0-0"), make_group("x.0-0"), *make_attempt("y.0-0", "task-two", group="h")]
    write(*records)
    write(PolicyVersion(run="r", number=1, location="w", created_at=1.0))
    store.delete(task="task-one")

    write(*records)
    assert ids(store) == ["y.0-0"]
    store.admin.reindex(drop=True)
    assert ids(store) == ["y.0-0"]
    assert store.redis.exists(store.keys.group("g")) == 0
    store.redis.delete(*store.redis.keys(store.keys.name("*")))
    store.admin.reindex()
    assert ids(store) == ["y.0-0"]

    store.delete(task="task-one")
    assert found_in_bucket(store, SECRET, b"y.0-0") == {SECRET, b"y.0-0"}, "y says it too"
    assert found_in_bucket(store, b"x.0-0") == set()
    assert store.admin.check().findings == []


def test_a_batch_names_nobody_who_is_dead_whenever_it_is_written(store, write):
    write(*make_attempt("x.0-0"), *make_attempt("y.0-0", "task-two", group="h"))
    write(make_batch("x.0-0", "y.0-0"))
    assert store.delete("x.0-0", purge=False).num_segments_left == 2
    assert named_in_batches(store) == [(["y.0-0"], 1)], "though the object still says so"
    store.admin.compact(only_dead=True)
    assert found_in_bucket(store, b"x.0-0") == set()

    write(
        make_batch("x.0-0", "y.0-0"),
        make_batch("y.0-0", "x.0-0", step=2),
        make_group("x.0-0", "y.0-0", group_id="late"),
    )
    assert found_in_bucket(store, b"x.0-0") == {b"x.0-0"}
    store.admin.reindex(drop=True)
    assert named_in_batches(store) == [(["y.0-0"], 1)] * 2
    store.admin.compact(only_dead=True)

    assert found_in_bucket(store, b"x.0-0", b"y.0-0") == {b"y.0-0"}
    assert named_in_batches(store) == [(["y.0-0"], 1)] * 2
    assert store.admin.check().findings == []


def test_a_quarantined_segment_that_cannot_be_rewritten_is_counted(store, write):
    name = write(*make_attempt("x.0-0"))
    key = segment_key(store.keys, name)
    content = bytearray(store.objects.get(key))
    content[20] ^= 1
    store.objects.put(key, bytes(content))

    report = store.delete("x.0-0")

    assert report.num_trajectories == 1
    assert ids(store) == []
    assert (report.num_segments_left == 0) == (found_in_bucket(store, b"x.0-0") == set())
