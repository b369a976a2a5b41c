"""``store delete`` and ``store expire`` as users type them."""

from itertools import chain

import pytest

from agent_layer.dispatcher import connect
from agent_layer.recorder.log import open_recorder
from agent_layer.schema.task import Task
from agent_layer.store import open_store

from ...builders import attempt, content
from ...stored import write_segment


def make_stored_attempt(tid, task, user, group=None):
    words = content(tid, f"what {user} said".encode())
    return attempt(tid, words, task_id=task, labels={"user": user}, group_id=group)


@pytest.fixture
def stored(settings):
    """A store with attempts of two users, in one segment."""
    store = open_store(settings)
    attempts = (
        make_stored_attempt("x.0-0", "task-one", "user-seven"),
        make_stored_attempt("y.0-0", "task-two", "user-eight"),
    )
    write_segment(store, *chain.from_iterable(attempts))
    return store


def ids(store):
    return sorted(row.trajectory_id for row in store.query().items)


def test_a_dry_run_says_what_would_go_and_the_deletion_what_went(agent_layer, stored):
    status, out, _ = agent_layer("store", "delete", "--label", "user=user-seven", "--dry-run")
    assert (status, out.startswith("would delete 1 trajectory and 0 groups: ")) == (0, True)
    assert ids(stored) == ["x.0-0", "y.0-0"]

    status, out, _ = agent_layer("store", "delete", "--label", "user=user-seven")
    assert (status, out.startswith("deleted 1 trajectory and 0 groups: "), out.count("\n")) == (0, True, 1)
    assert ids(stored) == ["y.0-0"]
    assert stored.redis.scard(stored.keys.rewrite) == 0


def test_one_is_deleted_by_its_id_and_bytes_may_stay_for_now(agent_layer, stored):
    status, out, _ = agent_layer("store", "delete", "x.0-0", "--keep-bytes")

    assert status == 0
    assert out.splitlines()[1] == "bytes of something dead are still in 1 segment; they go with the next compaction"
    assert ids(stored) == ["y.0-0"]


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (["delete"], "would delete everything"),
        (["delete", "x.0-0", "--task", "task-one"], "found both"),
        (["delete", "z-0"], "trajectory 'z-0'"),
        (["delete", "--label", "user"], "NAME=VALUE"),
        (["expire"], "at least one rule"),
        (["expire", "--older-than", "long"], "older_than 'long'"),
        (["expire", "--stale-env", "maze"], "environment 'maze'"),
        (["expire", "--duplicates", "oldest"], "oldest"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(agent_layer, arguments, finding):
    status, out, err = agent_layer("store", *arguments)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert finding in err


def test_expiry_is_shown_first_and_done_with_yes(agent_layer, stored):
    status, out, err = agent_layer("store", "expire", "--older-than", "30d", "--task", "task-one")
    assert (status, err) == (0, "nothing was changed; add --yes to do it\n")
    assert out.splitlines()[-1].startswith("would delete 1 trajectory")
    assert out.splitlines()[1].split() == ["r", "completed", "default", "1"]
    assert ids(stored) == ["x.0-0", "y.0-0"]

    status, out, err = agent_layer("store", "expire", "--older-than", "30d", "--task", "task-one", "--yes")
    assert (status, err) == (0, "")
    assert out.splitlines()[-1].startswith("deleted 1 trajectory")
    assert ids(stored) == ["y.0-0"]


def test_a_task_that_is_still_tried_is_named_and_can_be_cancelled(agent_layer, stored, settings):
    dispatcher = connect(settings)
    [group_id] = dispatcher.submit([Task(id="task-three", run="r", input="of user-nine")])

    status, _, err = agent_layer("store", "delete", "--task", "task-three")
    assert (status, f"open: {group_id}: " in err) == (0, True)
    status, out, err = agent_layer("store", "delete", "--task", "task-three", "--cancel")
    assert (status, err, " 1 group" in out) == (0, "", True)

    assert dispatcher.groups() == []
    assert not stored.redis.exists(stored.keys.queue("g", group_id))
    dispatcher.submit([Task(id="task-three", run="r", input="of user-nine")])
    assert dispatcher.groups() == [], "its attempts would be dropped"
    assert open_recorder(settings).flush().pending == 0
    assert not stored.redis.exists(stored.keys.group(group_id))
