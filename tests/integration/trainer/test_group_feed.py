"""The feed never asks for more than staleness allows, and for nothing twice."""

import gc
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from agent_layer.dispatcher import connect
from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.schema.training import PolicyVersion
from agent_layer.store import GroupDelivery, open_store
from trainer_adapter.config import RolloutConfig, SourceConfig, TrainConfig
from trainer_adapter.loop.checkpoint import Cursor
from trainer_adapter.loop.feed import CONSUMER, GroupFeed
from trainer_adapter.selection import SuccessRamp, SuccessShare
from trainer_adapter.tasks.journal import DrawJournal
from trainer_adapter.tasks.mix import MixFile
from trainer_adapter.tasks.source import open_training_sources
from trainer_adapter.tasks.state import Draw
from trainer_adapter.tasks.stream import TaskStream

from ...builders import closed_group
from ...profiles import num_examples
from ...queues import open_queue
from ...stored import write_segment

TASKS = [{"id": f"t{number}", "input": number} for number in range(4)]


@pytest.fixture
def dispatcher(settings):
    return connect(settings)


@pytest.fixture
def make(settings, dispatcher, tmp_path):
    """``make(cursor=…, tasks=…, source=…, **plan)``: a feed over tasks, four by default."""
    store = open_store(settings)

    def make(cursor=None, tasks=None, source=None, **plan):
        path = tmp_path / "tasks.jsonl"
        path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in tasks or TASKS))
        rollouts = RolloutConfig(**{"ask_ahead_steps": 0, **plan})
        sources = [source or SourceConfig(path=path)]
        config = TrainConfig(model=Path("m"), tasks=sources, steps=9, run="r", rollouts=rollouts)
        cursor = cursor or Cursor()
        stream = TaskStream(
            open_training_sources(config, settings),
            cursor.tasks,
            mix=MixFile(tmp_path / "mix.json"),
            journal=DrawJournal(tmp_path / "draws.jsonl", cursor.num_asked),
        )
        return GroupFeed("r", stream, config, dispatcher, store, cursor)

    return make


def open_groups(feed):
    return sorted(feed._open, key=feed._open.__getitem__)


def submitted(dispatcher):
    return sorted((group.group_id, group.group_size) for group in dispatcher.groups())


@pytest.mark.parametrize(
    ("groups_per_step", "max_staleness", "expected"), [(None, 0, 4), (None, 1, 8), (3, 0, 3), (3, 2, 9), (6, 1, 12)]
)
def test_no_more_is_in_flight_than_staleness_allows(make, dispatcher, groups_per_step, max_staleness, expected):
    feed = make(groups_per_step=groups_per_step, max_staleness=max_staleness)

    feed.submit_groups(0)
    feed.submit_groups(0)

    assert len(submitted(dispatcher)) == expected
    assert feed.cursor(0, 0, []).open_positions == list(range(expected))


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("max_staleness", [0, 1, 3])
def test_the_last_steps_ask_for_what_they_train_and_no_more(make, dispatcher, max_staleness, ahead):
    feed = make(groups_per_step=2, max_staleness=max_staleness, ask_ahead_steps=ahead)

    for step in range(9):  # of nine
        feed.submit_groups(step, step)
        trained = open_groups(feed)[:2]
        assert len(trained) == 2
        feed.close_groups(trained)

    assert len(submitted(dispatcher)) == 2 * 9
    assert feed.cursor(9, 9, []).open_positions == []


def test_a_group_that_fails_in_the_last_step_is_still_replaced(make, dispatcher):
    feed = make(groups_per_step=2, max_staleness=1)
    feed.submit_groups(8, 8)
    feed.close_groups(open_groups(feed)[:1])
    feed.submit_groups(8, 8)

    assert len(submitted(dispatcher)) == 3


@pytest.mark.parametrize("num_kept", [0, 2])
def test_a_checkpoint_before_one_that_is_gone_is_refused_at_once(make, num_kept):
    feed = make(groups_per_step=2, max_staleness=0)
    feed.submit_groups(0)
    groups = open_groups(feed)
    feed.close_groups(groups[:num_kept])
    older = feed.cursor(1, 1, groups[:num_kept]) if num_kept else Cursor()
    feed.submit_groups(1, 1)
    trained = [*groups, *open_groups(feed)]
    feed.acknowledge(trained)

    again = make(cursor=older, groups_per_step=2, max_staleness=0)
    again.submit_groups(1, 1)
    with pytest.raises(BadInputError, match="2 of its next 2 groups were trained behind a later one, which is gone"):
        next(again.follow(lambda: False))


def test_a_finished_group_makes_room_for_one_other(make, dispatcher):
    feed = make(groups_per_step=2, max_staleness=0)
    feed.submit_groups(0)
    first = submitted(dispatcher)[0][0]

    feed.close_groups([first])
    feed.close_groups([first])
    feed.submit_groups(0)

    assert len(submitted(dispatcher)) == 3


def test_each_task_is_asked_once_per_epoch(make, dispatcher):
    make(max_staleness=1).submit_groups(0)

    tasks = [group.task_id for group in dispatcher.groups()]
    assert sorted(tasks) == sorted([task["id"] for task in TASKS] * 2)
    assert len(set(submitted(dispatcher))) == 8


def test_a_feed_that_starts_again_asks_for_nothing_twice(make, dispatcher):
    feed = make(groups_per_step=2, max_staleness=1)
    feed.submit_groups(0)
    cursor = feed.cursor(step=3, policy_version=3, taken=["g"])
    before = submitted(dispatcher)

    again = make(cursor=cursor, groups_per_step=2, max_staleness=1)
    again.submit_groups(0)

    assert submitted(dispatcher) == before
    assert again.cursor(3, 3, ["g"]) == cursor


def test_a_group_that_is_redone_keeps_its_position_and_is_asked_for_once(make, dispatcher):
    feed = make(groups_per_step=2, max_staleness=0)
    feed.submit_groups(0)
    before = feed.cursor(0, 0, [])
    (first, task) = next((group.group_id, group.task_id) for group in dispatcher.groups())

    feed.redo_group(first)
    feed.redo_group(first)
    feed.submit_groups(0)

    (again,) = {group.group_id for group in dispatcher.groups() if group.task_id == task} - {first}
    cursor = feed.cursor(0, 0, [])
    assert cursor.open_positions == before.open_positions
    assert sorted(cursor.open_tries) == [0, 1]
    num_asked = len(submitted(dispatcher))
    resumed = make(cursor=cursor, groups_per_step=2, max_staleness=0)
    resumed.redo_group(again)
    assert len(submitted(dispatcher)) == num_asked + 1
    assert sorted(resumed.cursor(0, 0, []).open_tries) == [0, 2]


def test_what_the_dispatcher_lost_is_asked_for_again(make, dispatcher, redis, keys):
    feed = make(groups_per_step=2, max_staleness=0)
    feed.submit_groups(0)
    cursor, before = feed.cursor(0, 0, []), submitted(dispatcher)
    redis.delete(*redis.scan_iter(match=keys.queue("*")))

    make(cursor=cursor, groups_per_step=2, max_staleness=0)

    assert submitted(dispatcher) == before


def test_groups_of_a_checkpoint_are_acknowledged_when_it_is_found(make, redis, keys):
    make(cursor=Cursor(taken=["g", "h"]))

    assert redis.smembers(keys.acked("r", CONSUMER)) == {b"g", b"h"}


def test_a_curriculum_gives_more_rollouts_to_tasks_that_fail(make, dispatcher):
    feed = make(group_size=10, max_staleness=0, curriculum=SuccessShare())
    feed.update_success_rates({"t0": 0.0, "t1": 1.0, "t2": 1.0, "t3": 1.0})

    feed.submit_groups(0)

    sizes = {group.task_id: group.group_size for group in dispatcher.groups()}
    assert sum(sizes.values()) == 40
    assert sizes["t0"] > 10 > sizes["t1"] == pytest.approx(sizes["t3"], abs=1)


def test_tasks_are_asked_for_as_the_plan_says(make, dispatcher):
    make(group_size=4, launch=1.25, partial="drop", priority=7, groups_per_step=1, max_staleness=0).submit_groups(0)

    (lease, *others) = open_queue(dispatcher).claim("w", 9)
    assert len(others) == 4
    task = lease.task
    assert (task.group_size, task.launch, task.partial, task.priority) == (4, 5, "drop", 7)


def test_each_group_has_a_sampling_seed_that_follows_from_the_seed_and_its_position(make, dispatcher, redis, keys):
    def seeds():
        return {lease.group_id: lease.task.sampling_seed for lease in open_queue(dispatcher).claim("w", 99)}

    feed = make(max_staleness=1)
    feed.submit_groups(0)
    first = seeds()
    redis.delete(*redis.scan_iter(match=keys.queue("*")))
    make(max_staleness=1).submit_groups(0)
    assert seeds() == first
    assert len(set(first.values())) == 8

    redone = next(iter(first))
    feed.redo_group(redone)
    assert set(seeds().values()).isdisjoint(first.values())


def test_what_the_plan_leaves_open_is_as_its_task_says(make, dispatcher):
    own = {"id": "t", "input": 1, "group_size": 5, "launch": 9, "partial": "refill", "priority": 3}
    make(tasks=[own], group_size=2).submit_groups(0)

    task = open_queue(dispatcher).claim("w", 1)[0].task
    assert (task.group_size, task.launch, task.partial, task.priority) == (2, None, "refill", 3)


def test_with_a_curriculum_each_group_launches_its_own_share_of_more(make, dispatcher):
    feed = make(group_size=10, launch=1.1, max_staleness=0, curriculum=SuccessShare())
    feed.update_success_rates({"t0": 0.0, "t1": 1.0, "t2": 1.0, "t3": 1.0})

    feed.submit_groups(0)

    groups = dispatcher.groups()
    assert sum(group.group_size for group in groups) == 40
    assert all(1.1 * group.group_size <= group.num_launched < 1.1 * group.group_size + 1 for group in groups)


def test_groups_are_asked_ahead_with_the_version_from_which_they_may_begin(make, dispatcher):
    feed = make(groups_per_step=2, max_staleness=1, ask_ahead_steps=2, group_size=2)

    feed.submit_groups(0)

    assert len(submitted(dispatcher)) == 8
    assert feed.cursor(0, 0, []).open_starts == [-1, -1, 0, 0, 1, 1, 2, 2]
    assert len({lease.group_id for lease in open_queue(dispatcher).claim("w", 99)}) == 4
    dispatcher.serve("r", 1)
    assert {lease.task.from_policy for lease in open_queue(dispatcher).claim("w", 99)} == {1}


def test_no_group_begins_before_the_first_version_of_its_run_serves(make, dispatcher, settings):
    draws = [Draw(source="tasks", index=0, task_id="t0")]
    cursor = Cursor(
        policy_version=None, first_version=1, num_asked=1, open_positions=[0], open_starts=[0], open_draws=draws
    )
    feed = make(cursor=cursor, groups_per_step=2, max_staleness=1, group_size=2)

    feed.submit_groups(1)
    write_segment(
        open_store(settings), PolicyVersion(run="r", number=1, location="w", created_at=0.0)
    )  # not loaded yet
    assert open_queue(dispatcher).claim("w", 99) == []
    dispatcher.serve("r", 1)

    assert {lease.task.from_policy for lease in open_queue(dispatcher).claim("w", 99)} == {1}
    assert feed.cursor(1, 1, []).first_version == 1


def test_a_feed_that_goes_on_under_later_versions_asks_for_the_same_groups_and_lets_them_begin(make, dispatcher):
    plan = {"groups_per_step": 2, "max_staleness": 0, "ask_ahead_steps": 1, "group_size": 2}
    feed = make(**plan)
    feed.submit_groups(0)
    cursor, before = feed.cursor(0, 0, []), submitted(dispatcher)

    again = make(cursor=cursor, **plan)
    again.submit_groups(7)  # the trainer that was killed had come to 6
    dispatcher.serve("r", 7)

    assert submitted(dispatcher) == before
    assert len({lease.group_id for lease in open_queue(dispatcher).claim("w", 99)}) == 4


@given(st.data())
@hypothesis_settings(max_examples=num_examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_group_is_given_out_too_early_for_its_step(make, dispatcher, redis, keys, data):
    for key in redis.scan_iter(match=keys.queue("*")):
        redis.delete(key)
    size, staleness = data.draw(st.integers(1, 3), "groups per step"), data.draw(st.integers(0, 2), "staleness")
    ahead = data.draw(st.integers(0, 2), "ahead")
    feed = make(groups_per_step=size, max_staleness=staleness, ask_ahead_steps=ahead, group_size=2)
    began: dict[str, int] = {}
    """Version that served when it was given out, by group id, in order of being trained."""
    for version in range(5):
        feed.submit_groups(version)
        dispatcher.serve("r", version)
        while True:
            for lease in open_queue(dispatcher).claim("w", 99):
                began.setdefault(lease.group_id, version)
            if not began or not data.draw(st.booleans(), "drop one"):
                break
            dropped = data.draw(st.sampled_from(sorted(began)), "dropped")
            began.pop(dropped)
            feed.close_groups([dropped])
            feed.submit_groups(version)
        trained = list(began)[:size]
        assert len(trained) == size
        assert all(version - began.pop(group_id) <= staleness for group_id in trained)
        feed.close_groups(trained)


def test_a_run_without_workers_ends_with_a_sentence(make):
    feed = make(patience_seconds=0.01)
    feed.submit_groups(0)

    with pytest.raises(AgentLayerError, match="is a worker running"):
        next(feed.follow(lambda: False))


@given(replaced=st.lists(st.booleans(), min_size=8, max_size=8))
@hypothesis_settings(max_examples=num_examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_ramp_sees_every_group_of_a_step_once_replaced_or_not(make, dispatcher, settings, redis, keys, replaced):
    for key in redis.scan_iter(match=keys.name("*")):
        redis.delete(key)
    store = open_store(settings)
    ramp = SuccessRamp(above=1.0, groups=len(replaced))
    source = SourceConfig(taskset="repair", count=2, ramp=ramp)
    feed = make(source=source, groups_per_step=2, max_staleness=0, group_size=2)
    feed.submit_groups(0)
    deliveries = feed.follow(lambda: False)
    first_level = feed.cursor(0, 0, []).tasks.levels["repair"]
    yielded = []

    for is_replaced in replaced:
        for group in dispatcher.groups():
            if not redis.exists(keys.group(group.group_id)):
                write_segment(store, closed_group(group.group_id, task_id=group.task_id))
        delivery = next(deliveries)
        yielded.append(delivery.group)
        waiting = set(feed.cursor(0, 0, []).open_positions)
        if is_replaced:
            feed.replace_group(delivery.group.group_id)
            feed.submit_groups(0)
        assert waiting <= set(feed.cursor(0, 0, []).open_positions)  # none is lost to a checkpoint before its update
        if len(yielded) < len(replaced) and not set(feed.cursor(0, 0, []).open_positions) - set(range(len(yielded))):
            feed.update_success_rates({one.task_id: 1.0 for one in yielded[-len(waiting) :]})
            feed.close_groups([one.group_id for one in yielded])
            feed.submit_groups(0)

    assert feed.cursor(0, 0, []).tasks.levels["repair"] == first_level
    feed.update_success_rates({one.task_id: 1.0 for one in yielded})
    assert feed.cursor(0, 0, []).tasks.levels["repair"] == first_level + 1


def test_the_same_position_is_the_same_group_whatever_its_size(make, dispatcher):
    feed = make(groups_per_step=4, max_staleness=0, curriculum=SuccessShare())
    feed.submit_groups(0)
    before = submitted(dispatcher)
    cursor = msgspec.structs.replace(feed.cursor(0, 0, []), success_rates={"t0": 1.0, "t1": 0.0})

    make(cursor=cursor, groups_per_step=4, max_staleness=0, curriculum=SuccessShare())

    assert submitted(dispatcher) == before


def test_what_redis_forgot_is_submitted_again_while_the_feed_waits(make, dispatcher, redis):
    feed = make(groups_per_step=3, max_staleness=0, patience_seconds=60)
    feed.submit_groups(0)
    before = submitted(dispatcher)
    redis.delete(*redis.scan_iter(match=f"al:{{{dispatcher.settings.namespace}}}:*", count=1000))
    stops = 0

    def stop():
        nonlocal stops
        stops += 1
        open_queue(dispatcher).reap()  # as a worker's claim: it restores the index
        return stops > 3

    assert list(feed.follow(stop)) == []
    assert submitted(dispatcher) == before


def test_the_feed_keeps_no_group_that_it_does_not_await(make, dispatcher, settings):
    """As all that were trained before an emptied Redis, and those of other submitters, which come again and again."""
    feed = make(groups_per_step=2, max_staleness=0, patience_seconds=30)
    feed.submit_groups(0)
    wanted = [group_id for group_id, _ in submitted(dispatcher)]
    others = [closed_group(f"foreign.{at}", closed_at=float(at)) for at in range(20)]
    write_segment(open_store(settings), *others, *(closed_group(one, closed_at=99.0) for one in wanted))

    followed = feed.follow(lambda: False)
    first, _ = next(followed), next(followed)

    assert first.group.group_id in wanted
    kept = [one.group.group_id for one in gc.get_objects() if type(one) is GroupDelivery]
    assert [one for one in kept if one.startswith("foreign.")] == []


def test_groups_that_closed_before_their_submission_are_yielded_in_order(make, dispatcher, settings):
    """A trainer that goes on from an earlier checkpoint submits again what has closed long ago."""
    make(groups_per_step=2, max_staleness=3).submit_groups(0)
    closed = sorted(group.group_id for group in dispatcher.groups())
    write_segment(open_store(settings), *(closed_group(one, closed_at=float(at)) for at, one in enumerate(closed)))
    feed = make(groups_per_step=2, max_staleness=0, patience_seconds=30)
    feed.submit_groups(0)

    followed, yielded = feed.follow(lambda: False), []
    for version in range(4):
        step = [next(followed).group.group_id for _ in range(2)]
        assert step == sorted(feed._open, key=feed._open.get)
        feed.close_groups(step)
        feed.submit_groups(version + 1)
        yielded += step

    assert sorted(yielded) == closed
