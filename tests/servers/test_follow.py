"""A consumer of groups receives whole groups, in order of closing, until it acknowledges them."""

import threading

import pytest

from agent_layer.schema.rollout import Accepted, AttemptStarted, Group, Outcome
from agent_layer.store import Store

from ..waiting import join, scaled


def member(tid, *, accepted=True):
    own = {"trajectory_id": tid, "run": "r"}
    started = AttemptStarted(**own, rollout_id=tid[:-2], attempt=0, task_id="t", started_at=1.0)
    outcome = Outcome(**own, status="completed", ended_at=2.0)
    return [started, outcome, *([Accepted(**own, rollout_id=tid[:-2], accepted_at=3.0)] if accepted else [])]


def group(group_id, closed_at, *trajectory_ids, run="r", split="train"):
    return Group(
        group_id=group_id, run=run, task_id="t", closed_at=closed_at, split=split, trajectory_ids=list(trajectory_ids)
    )


@pytest.fixture
def objects_settings(settings):
    """One kind of object store is enough here: groups lie in Redis."""
    return settings


def ready(store, consumer="c", **options):
    return [one.group.group_id for one in store.follow(consumer, "r", wait_seconds=0, **options)]


def test_groups_come_whole_and_in_order_of_closing(store, write):
    write(*member("a.1-0"), *member("a.0-0"), group("late", 2.0, "a.0-0", "a.1-0"))
    write(*member("b.0-0"), group("early", 1.0, "b.0-0"), group("dead", 3.0))

    deliveries = list(store.follow("c", "r", wait_seconds=0))

    assert [one.group.group_id for one in deliveries] == ["early", "late", "dead"]
    assert [[t.trajectory_id for t in one.trajectories] for one in deliveries] == [["b.0-0"], ["a.0-0", "a.1-0"], []]
    assert all(t.accepted for one in deliveries for t in one.trajectories)


def test_what_was_not_acknowledged_comes_again_what_was_does_not(store, write):
    write(group("g", 1.0), group("h", 2.0), group("i", 3.0))
    for one in store.follow("c", "r", wait_seconds=0):
        if one.group.group_id != "h":
            one.ack()
            one.ack()

    assert ready(store) == ["h"]
    assert ready(store, "another") == ["g", "h", "i"]


def test_another_run_or_split_is_not_for_this_consumer(store, write):
    write(group("g", 1.0), group("e", 2.0, split="eval"), group("o", 3.0, run="other"))

    assert ready(store) == ["g"]
    assert ready(store, split="eval") == ["e"]
    assert ready(store, split=None) == ["g", "e"]


def test_a_group_waits_until_all_its_trajectories_are_accepted_in_the_index(store, write):
    write(group("g", 1.0, "a.0-0"), *member("a.0-0", accepted=False))
    write(group("h", 2.0))
    follower = store.follow("c", "r", wait_seconds=scaled(60))
    assert next(follower).group.group_id == "h"

    write(*member("a.0-0"))

    assert next(follower).group.group_id == "g"


def test_a_group_that_closed_before_one_already_seen_is_not_missed(store, write):
    follower = store.follow("c", "r", wait_seconds=scaled(60))
    write(group("second", 2.0))
    assert next(follower).group.group_id == "second"

    write(group("first", 1.0))

    assert next(follower).group.group_id == "first"


def test_a_waiting_consumer_is_woken_by_the_commit(store, write, wait_until, monkeypatch):
    by_itself = scaled(600.0)  # it looks again after the test
    monkeypatch.setattr("agent_layer.store.consumers.follower._LOOK_SECONDS", by_itself)
    found = []
    follower = store.follow("c", "r", wait_seconds=by_itself)
    waiting = threading.Thread(target=lambda: found.append(next(follower).group.group_id), daemon=True)
    waiting.start()
    wait_until(lambda: store.redis.info("clients")["blocked_clients"])

    write(group("g", 1.0))
    join(waiting)

    assert found == ["g"]


def test_a_consumer_stops_when_told_or_when_nothing_came_for_so_long(store, write):
    write(group("g", 1.0), group("h", 2.0))
    stopping = threading.Event()
    seen = []
    for one in store.follow("c", "r", stop=stopping.is_set):
        seen.append(one.group.group_id)
        stopping.set()

    assert seen == ["g"]
    assert ready(store) == ["g", "h"]


def test_reading_in_batches_gives_each_group_once_until_a_restart(store, write, settings):
    write(group("g", 1.0), group("h", 2.0), group("i", 3.0))

    batches = [[one.group.group_id for one in store.read_groups("c", "r", limit=2)] for _ in range(3)]

    assert batches == [["g", "h"], ["i"], []]
    restarted = Store(settings, store.redis, store.objects)
    assert [one.group.group_id for one in restarted.read_groups("c", "r")] == ["g", "h", "i"]


def test_a_decision_that_nobody_ships_any_more_is_shipped_for_who_follows(store, redis, keys):
    decided = {"kind": "group", "group_id": "g", "run": "r", "task_id": "t", "task_type": "x", "split": "train"}
    attributes = {"fill": "short", "num_launched": "2", "num_usable": "0", "num_surplus": "0", "surplus_seconds": ""}
    redis.xadd(keys.outbox, decided | attributes | {"group_size": "2", "at": "6.5", "members": "", "kept_seconds": ""})

    one = next(store.follow("c", "r", wait_seconds=scaled(60)))

    assert one.group.group_id == "g"


def test_a_dropped_group_comes_without_its_trajectories_and_says_so(store, redis, keys):
    decided = {"kind": "group", "group_id": "g", "run": "r", "task_id": "t", "task_type": "x", "split": "train"}
    attributes = {
        "fill": "dropped",
        "num_launched": "3",
        "num_usable": "1",
        "num_surplus": "1",
        "surplus_seconds": "4.5",
    }
    redis.xadd(
        keys.outbox, decided | attributes | {"group_size": "2", "at": "6.5", "members": "", "kept_seconds": "2.5"}
    )

    one = next(store.follow("c", "r", wait_seconds=scaled(60)))

    assert (one.group.fill, one.group.num_launched, one.group.num_usable, one.trajectories) == ("dropped", 3, 1, [])
    assert (one.group.num_surplus, one.group.kept_seconds, one.group.surplus_seconds) == (1, 2.5, 4.5)
    assert one.ack() == "acked"
    assert ready(store) == []
