"""This file holds the promises of the feed: never more asked for than staleness allows, nothing asked for twice."""

from pathlib import Path

import msgspec
import pytest

from agent_layer.dispatcher import connect
from agent_layer.errors import AgentLayerError
from agent_layer.schema.task import Task
from agent_layer.store import open_store
from trainer_adapter.checkpoint import Cursor
from trainer_adapter.config import Curriculum, Rollouts, TrainConfig
from trainer_adapter.groups import CONSUMER, GroupFeed, task_order

TASKS = [Task(id=f"t{number}", run="r") for number in range(4)]


@pytest.fixture
def dispatcher(settings):
    return connect(settings)


@pytest.fixture
def make(settings, dispatcher):
    """``make(cursor=…, **plan)``: a feed over the four tasks."""
    store = open_store(settings)

    def make(cursor=None, **plan):
        config = TrainConfig(model=Path("m"), tasks=Path("t"), steps=9, rollouts=Rollouts(**plan))
        return GroupFeed("r", TASKS, config, dispatcher, store, cursor or Cursor())

    return make


def asked(dispatcher):
    return sorted((group.group_id, group.group_size) for group in dispatcher.groups())


@pytest.mark.parametrize(
    ("groups_per_step", "max_staleness", "expected"), [(None, 0, 4), (None, 1, 8), (3, 0, 3), (3, 2, 9), (6, 1, 12)]
)
def test_no_more_is_in_flight_than_staleness_allows(make, dispatcher, groups_per_step, max_staleness, expected):
    feed = make(groups_per_step=groups_per_step, max_staleness=max_staleness)

    feed.ask()
    feed.ask()

    assert len(asked(dispatcher)) == expected
    assert feed.cursor(0, 0, []).open_positions == list(range(expected))


def test_a_finished_group_makes_room_for_one_other(make, dispatcher):
    feed = make(groups_per_step=2, max_staleness=0)
    feed.ask()
    first = asked(dispatcher)[0][0]

    feed.finish([first])
    feed.finish([first])
    feed.ask()

    assert len(asked(dispatcher)) == 3


def test_each_task_is_asked_once_per_epoch(make, dispatcher):
    make(max_staleness=1).ask()

    tasks = [group.task_id for group in dispatcher.groups()]
    assert sorted(tasks) == sorted([task.id for task in TASKS] * 2)
    assert len(set(asked(dispatcher))) == 8


def test_a_feed_that_starts_again_asks_for_nothing_twice(make, dispatcher):
    feed = make(groups_per_step=2, max_staleness=1)
    feed.ask()
    cursor = feed.cursor(step=3, policy_version=3, taken=["g"])
    before = asked(dispatcher)

    again = make(cursor=cursor, groups_per_step=2, max_staleness=1)
    again.ask()

    assert asked(dispatcher) == before
    assert again.cursor(3, 3, ["g"]) == cursor


def test_what_the_dispatcher_lost_is_asked_for_again(make, dispatcher, redis, keys):
    feed = make(groups_per_step=2, max_staleness=0)
    feed.ask()
    cursor, before = feed.cursor(0, 0, []), asked(dispatcher)
    redis.delete(*redis.scan_iter(match=keys.queue("*")))

    make(cursor=cursor, groups_per_step=2, max_staleness=0)

    assert asked(dispatcher) == before


def test_groups_of_a_checkpoint_are_acknowledged_when_it_is_found(make, redis, keys):
    make(cursor=Cursor(taken=["g", "h"]))

    assert redis.smembers(keys.acked("r", CONSUMER)) == {b"g", b"h"}


def test_a_curriculum_gives_more_rollouts_to_tasks_that_fail(make, dispatcher):
    feed = make(group_size=10, max_staleness=0, curriculum=Curriculum())
    feed.learn({"t0": 0.0, "t1": 1.0, "t2": 1.0, "t3": 1.0})

    feed.ask()

    sizes = {group.task_id: group.group_size for group in dispatcher.groups()}
    assert sum(sizes.values()) == 40
    assert sizes["t0"] > 10 > sizes["t1"] == pytest.approx(sizes["t3"], abs=1)


def test_a_run_without_workers_ends_with_a_sentence(make):
    feed = make(patience_seconds=0.01)

    with pytest.raises(AgentLayerError, match="is a worker running"):
        next(feed.follow(lambda: False))


def test_an_order_is_the_seeds_and_changes_with_the_epoch():
    assert task_order(20, seed=1, epoch=3) == task_order(20, seed=1, epoch=3)
    assert sorted(task_order(20, seed=1, epoch=4)) == list(range(20))
    assert len({tuple(task_order(20, seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_the_same_position_is_the_same_group_whatever_its_size(make, dispatcher):
    feed = make(groups_per_step=4, max_staleness=0, curriculum=Curriculum())
    feed.ask()
    before = asked(dispatcher)
    cursor = msgspec.structs.replace(feed.cursor(0, 0, []), success_rates={"t0": 1.0, "t1": 0.0})

    make(cursor=cursor, groups_per_step=4, max_staleness=0, curriculum=Curriculum())

    assert asked(dispatcher) == before
