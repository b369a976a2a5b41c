"""Expiry: every rule must match, and a trajectory that a consumer waits for stays."""

import time

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from agent_layer.errors import BadInputError
from agent_layer.schema.step import Action
from agent_layer.store.index.rows import TrajectoryRow
from agent_layer.store.maintenance.retention import find_duplicates, task_key

from ..builders import attempt, call, closed_group
from ..profiles import num_examples

DAY = 86_400.0
NOW = time.time()


@pytest.fixture
def objects_settings(settings):
    """One kind of object store is enough here; deletion has its own tests over both."""
    return settings


def make_attempt(tid, *, age_days=1.0, status="completed", versions=(1, 1), group=None, **fields):
    """An attempt that ended some days ago."""
    run, at = fields.pop("run", "r"), NOW - age_days * DAY
    parts = call(tid, "a", Action(policy_versions=[(version, 1) for version in versions]), at=at - 50.0, run=run)
    task = {"task_id": "t", "task_type": "math", **fields}
    return attempt(tid, *parts, at=at - len(parts) - 2, status=status, run=run, group_id=group, **task)


def make_group(group_id, *members, split="train"):
    return closed_group(group_id, *members, split=split)


def ids(store):
    return {row.trajectory_id for row in store.query(limit=100).items}


def test_what_ended_long_ago_expires_and_only_that(store, write):
    write(*make_attempt("old.0-0", age_days=31), *make_attempt("young.0-0", age_days=29))

    report = store.admin.expire(older_than="30d")

    assert report.counts == {("r", "completed", "math"): 1}
    assert report.deletion.num_bytes > 0
    assert ids(store) == {"young.0-0"}


def test_a_dry_run_counts_the_same_and_changes_nothing(store, write):
    write(*make_attempt("a.0-0", age_days=31), *make_attempt("b.0-0", age_days=31, status="failed"))

    shown = store.admin.expire(older_than="30d", dry_run=True)

    assert ids(store) == {"a.0-0", "b.0-0"}
    assert shown.counts == {("r", "completed", "math"): 1, ("r", "failed", "math"): 1}
    done = store.admin.expire(older_than="30d")
    assert (shown.counts, shown.deletion.num_bytes) == (done.counts, done.deletion.num_bytes)
    assert ids(store) == set()


def test_all_tokens_must_be_of_older_versions(store, write):
    write(*make_attempt("old.0-0", versions=(1, 4)), *make_attempt("between.0-0", versions=(4, 5)))
    write(*make_attempt("unknown.0-0", versions=()))

    store.admin.expire(policy_below=5)

    assert ids(store) == {"between.0-0", "unknown.0-0"}


def test_rules_and_filters_all_have_to_hold(store, write):
    write(*make_attempt("a.0-0", age_days=9, status="failed", labels={"user": "u"}))
    write(*make_attempt("b.0-0", age_days=9, labels={"user": "u"}), *make_attempt("c.0-0", age_days=9, status="failed"))
    write(*make_attempt("d.0-0", age_days=1, status="failed", labels={"user": "u"}))

    store.admin.expire(older_than="5d", status="failed", labels={"user": "u"}, run="r")

    assert ids(store) == {"b.0-0", "c.0-0", "d.0-0"}


@pytest.mark.parametrize("rules", [{}, {"run": None, "labels": {}, "older_than": None, "unread": True}])
def test_no_rule_is_no_wish_to_delete_everything(store, write, rules):
    write(*make_attempt("a.0-0"))

    with pytest.raises(BadInputError, match="at least one rule"):
        store.admin.expire(**rules)

    assert ids(store) == {"a.0-0"}


def test_what_has_no_end_is_kept_and_counted(store, write):
    write(*make_attempt("a.0-0", age_days=99, status="running"))

    report = store.admin.expire(older_than="30d")

    assert (report.counts, report.num_running) == ({}, 1)
    assert ids(store) == {"a.0-0"}


def test_members_of_a_group_that_is_not_closed_are_kept(store, write):
    write(*make_attempt("g.0-0", age_days=99, group="g"))
    store.redis.hset(store.keys.queue("g", "g"), mapping={"run": "r", "task_id": "t", "state": "open"})

    assert store.admin.expire(older_than="30d").num_running == 1
    assert ids(store) == {"g.0-0"}


def test_what_a_consumer_has_not_acknowledged_is_kept_unless_told_otherwise(store, write):
    write(*make_attempt("g.0-0", age_days=99, group="g"), make_group("g", "g.0-0"))
    write(*make_attempt("h.0-0", age_days=99, group="h"), make_group("h", "h.0-0"))
    for delivery in store.follow("trainer", "r", wait_seconds=0):
        if delivery.group.group_id == "g":
            delivery.ack()

    assert store.admin.expire(older_than="30d", dry_run=True).num_unread == 1
    store.admin.expire(older_than="30d")
    assert ids(store) == {"h.0-0"}

    report = store.admin.expire(older_than="30d", unread=True)
    assert (report.num_unread, report.deletion.num_groups) == (0, 1)
    assert ids(store) == set()


def test_a_consumer_of_training_groups_keeps_no_evaluation(store, write):
    write(*make_attempt("g.0-0", age_days=99, group="g", split="eval"), make_group("g", "g.0-0", split="eval"))
    store.redis.hset(store.keys.name("feeds", "r"), "trainer:train", "1 other")

    assert store.admin.expire(older_than="30d").num_unread == 0
    assert ids(store) == set()


def test_of_the_same_task_only_the_newest_answered_asking_stays(store, write):
    same = {"input_hash": "same"}
    write(
        *make_attempt("old.0-0", age_days=9, group="old", **same),
        *make_attempt("old.1-0", age_days=2, group="old", **same),
    )
    write(
        *make_attempt("mid.0-0", age_days=5, group="mid", **same),
        *make_attempt("mid.1-0", age_days=1, group="mid", **same),
    )
    write(*make_attempt("new.0-0", age_days=1, status="failed", group="new", **same))
    write(*make_attempt("else.0-0", age_days=9, run="other", **same), *make_attempt("none.0-0", age_days=9))
    write(*make_attempt("env.0-0", age_days=9, env="another", **same))

    store.admin.expire(duplicates="newest", older_than="3d")

    assert ids(store) == {"old.1-0", "mid.0-0", "mid.1-0", "new.0-0", "else.0-0", "none.0-0", "env.0-0"}


rows = st.builds(
    lambda number, group, day, accepted, hash_: TrajectoryRow(
        trajectory_id=f"{group}.{number}-0",
        group_id=group,
        input_hash=hash_,
        started_at=f"2026-11-{day:02}T00:00:00.000Z",
        accepted=accepted,
    ),
    st.integers(0, 99),
    st.sampled_from("abc"),
    st.integers(1, 28),
    st.booleans(),
    st.sampled_from(["x", "y", None]),
)


@hypothesis_settings(max_examples=num_examples(200))
@given(st.lists(rows, max_size=12))
def test_every_task_that_was_ever_answered_keeps_an_answered_asking(found):
    superseded = find_duplicates(found)

    def tasks(some):
        return {asking.task for row in some if row.accepted and (asking := task_key(row))}

    assert tasks(row for row in found if task_key(row) not in superseded) == tasks(found)
    assert find_duplicates([row for row in found if task_key(row) not in superseded]) == frozenset()


def test_trajectories_of_an_older_environment_expire(store, write):
    write(*make_attempt("a.0-0", age_days=3, env="maze", env_version="1"))
    write(*make_attempt("b.0-0", age_days=2, env="maze", env_version="2"))
    write(*make_attempt("c.0-0", age_days=1, env="maze"), *make_attempt("d.0-0", env="chess", env_version="1"))

    store.admin.expire(stale_env="maze", env="chess")
    store.admin.expire(stale_env="maze")
    assert ids(store) == {"b.0-0", "c.0-0", "d.0-0"}

    store.admin.expire(stale_env=("maze", "3"))
    assert ids(store) == {"c.0-0", "d.0-0"}


def test_an_environment_of_which_no_version_is_known_is_refused(store, write):
    write(*make_attempt("c.0-0", env="maze"))

    with pytest.raises(BadInputError, match="'maze'"):
        store.admin.expire(stale_env="maze")


def test_what_expired_does_not_come_back(store, write):
    records = list(make_attempt("a.0-0", age_days=31))
    write(*records)
    store.admin.expire(older_than="30d")

    write(*records)
    store.admin.reindex(drop=True)

    assert ids(store) == set()
