"""Groups: enough usable rollouts, no more than that, and the outcome when there are too few."""

import pytest

from agent_layer.errors import BadInputError, NotFoundError
from agent_layer.schema.rollout import Group
from agent_layer.schema.task import Limits, Task
from agent_layer.state.outbox import read_outbox


def test_the_slow_ones_are_cancelled_when_enough_are_usable(harness):
    group_id = harness.add(group_size=2, launch=4)
    leases = harness.claim(4)
    for lease in leases[:2]:
        harness.end(lease)

    assert harness.statuses(group_id) == ["completed", "completed", "cancelled", "cancelled"]
    assert harness.queue.heartbeat("w", b"{}", [(leases[3], "running")]).leases == ["cancel"]
    assert "found it cancelled" in str(harness.end(leases[2]))
    group = harness.group(group_id)
    assert (group.fill, group.num_usable, group.num_surplus, group.num_accepted) == ("whole", 2, 2, 2)


def test_a_worker_is_called_when_its_rollout_is_surplus(harness):
    harness.add(group_size=1, launch=2)
    (first,), (slow,) = harness.claim(worker="fast"), harness.claim(worker="slow")
    assert harness.queue.listen("slow", "0-0", 0.01) == "0-0"

    harness.end(first)

    called = harness.queue.listen("slow", "0-0", 5)
    assert called != "0-0"
    assert harness.queue.listen("slow", called, 0.01) == called
    assert harness.queue.heartbeat("slow", b"{}", [(slow, "running")]).leases == ["cancel"]


def test_what_had_not_begun_is_no_longer_given_out(harness):
    harness.add(group_size=1, launch=3)
    harness.end(harness.claim()[0])

    assert harness.claim(3) == []
    assert harness.dispatcher.stats().num_queued == 0


def test_an_attempt_without_a_reward_does_not_count(harness):
    group_id = harness.add(group_size=1, launch=2)
    first, second = harness.claim(2)
    harness.end(first, usable=False)
    assert not harness.group(group_id).is_closed
    harness.end(second)

    group = harness.group(group_id)
    assert (group.fill, group.num_usable, group.num_accepted) == ("whole", 1, 2)
    assert harness.run().num_unusable == 1


@pytest.mark.parametrize(("partial", "fill", "num_members"), [("deliver", "short", 1), ("drop", "dropped", 0)])
def test_a_group_with_too_few_is_delivered_or_dropped(harness, partial, fill, num_members):
    harness.add(group_size=2, partial=partial)
    first, second = harness.claim(2)
    harness.end(first)
    harness.end(second, "dead")

    (entry,) = harness.decisions("group")
    assert (entry["fill"], len(entry["members"].split(",")) if entry["members"] else 0) == (fill, num_members)


def test_a_group_is_filled_up_three_times_and_then_delivered(harness):
    group_id = harness.add(group_size=2, partial="refill")
    num_died = 0
    while leases := harness.claim(8):
        for lease in leases:
            harness.end(lease, "dead")
            num_died += 1

    group = harness.group(group_id)
    assert (group.is_closed, group.fill, group.num_launched) == (True, "short", num_died)
    assert num_died == 2 + 3  # each death that leaves too few asks for one more, until three times


def test_a_refilled_group_is_whole(harness):
    group_id = harness.add(group_size=2, partial="refill")
    first, second = harness.claim(2)
    harness.end(first, "dead")
    harness.end(second)
    (third,) = harness.claim(8)
    harness.end(third)

    (entry,) = harness.decisions("group")
    assert entry["members"] == f"{second.trajectory_id},{group_id}.2-0"
    assert (entry["fill"], entry["num_launched"]) == ("whole", "3")


def test_what_fills_a_group_up_goes_before_what_was_asked_for_later(harness):
    harness.add("early", group_size=1, partial="refill")
    (first,) = harness.claim()
    harness.add("late", group_size=3)
    harness.end(first, "dead")

    assert harness.claimed(2) == ["early", "late"]


def test_a_cancelled_group_is_not_filled_up(harness):
    group_id = harness.add(group_size=2, partial="refill")

    assert harness.queue.cancel([group_id]) == 2
    assert harness.group(group_id).is_closed


def test_the_bias_of_coming_first_is_shown(harness):
    group_id = harness.add(group_size=1, launch=2)
    fast, slow = harness.claim(2)
    harness.redis.hincrby(harness.keys.queue("r", slow.rollout_id), "began", -3_600_000)  # it has run for an hour
    harness.redis.hincrby(harness.keys.queue("r", fast.rollout_id), "began", -600_000)
    harness.end(fast)

    group, run = harness.group(group_id), harness.run()
    assert group.kept_seconds == pytest.approx(600, abs=60)
    assert group.surplus_seconds == pytest.approx(3_600, abs=60)
    assert (run.kept_seconds, run.surplus_seconds) == (group.kept_seconds, group.surplus_seconds)


def test_what_took_no_time_at_all_is_shown_too(harness):
    harness.add(group_size=1, launch=2)
    fast, _ = harness.claim(2)
    harness.end(fast)
    harness.redis.hdel(harness.keys.queue("book", "r"), "kept_ms", "cut_ms")  # as where both sums are 0

    assert (harness.run().kept_seconds, harness.run().surplus_seconds) == (0.0, 0.0)


def test_the_store_is_told_how_a_group_was_filled(harness):
    harness.add(group_size=1, launch=2)
    harness.end(harness.claim(2)[0])

    (group,) = [one for one in read_outbox(harness.redis, harness.keys).records if isinstance(one, Group)]
    assert (group.fill, group.num_launched, group.num_usable, group.num_surplus) == ("whole", 2, 1, 1)
    assert group.kept_seconds >= 0
    assert group.surplus_seconds >= 0


def test_a_retried_death_in_an_open_group_goes_back_to_its_place(harness):
    group_id = harness.add(group_size=2)
    first, second = harness.claim(2)
    harness.end(first, "dead")

    assert harness.dispatcher.retry_dead([first.rollout_id]) == [group_id]
    (again,) = harness.claim()
    assert (again.rollout_id, again.attempt) == (first.rollout_id, 1)
    harness.end(again)
    harness.end(second)
    assert harness.group(group_id).fill == "whole"
    assert harness.dispatcher.dead() == []


def test_a_retried_death_of_a_decided_group_is_asked_for_once_as_a_group_of_its_own(harness):
    group_id = harness.add(group_size=3, input="all of it")
    first, second, third = harness.claim(3)
    harness.end(first, "dead")
    harness.end(second, "dead")
    harness.end(third)
    dead = [first.rollout_id, second.rollout_id]

    (again,) = harness.dispatcher.retry_dead(dead)

    assert again != group_id
    assert [lease.task.input for lease in harness.claim(8)] == ["all of it"] * 2
    assert harness.dispatcher.dead() == []
    assert len(harness.decisions("group")) == 1


def test_only_the_dead_are_retried(harness):
    harness.add()
    (lease,) = harness.claim()

    with pytest.raises(NotFoundError, match="expected one that was given up"):
        harness.dispatcher.retry_dead([lease.rollout_id])


def test_the_dead_are_forgotten_when_told_so(harness):
    harness.add()
    (lease,) = harness.claim()
    harness.end(lease, "dead")

    assert harness.dispatcher.drop_dead([lease.rollout_id, "nobody.0"]) == 1
    assert harness.dispatcher.dead() == []


@pytest.mark.parametrize("end", ["retry_dead", "drop_dead"])
def test_nothing_of_a_decided_group_stays_when_none_of_it_is_dead_any_more(harness, end):
    group_id = harness.add(group_size=2)
    first, second = harness.claim(2)
    harness.end(first, "dead")
    harness.end(second, "dead")
    name = harness.keys.queue("g", group_id)

    getattr(harness.dispatcher, end)([first.rollout_id])
    assert (harness.redis.hexists(name, "task"), harness.redis.ttl(name)) == (True, -1)
    getattr(harness.dispatcher, end)([second.rollout_id])
    assert not harness.redis.hexists(name, "task")
    assert harness.redis.ttl(name) > 0


def test_the_forgotten_of_an_open_group_are_known_until_it_is_decided(harness):
    group_id = harness.add(group_size=2)
    first, second = harness.claim(2)
    harness.end(first, "dead")
    harness.dispatcher.drop_dead([first.rollout_id])
    names = [harness.keys.queue("r", lease.rollout_id) for lease in (first, second)]

    assert [harness.redis.ttl(name) for name in names] == [-1, -1]
    harness.end(second)
    assert all(harness.redis.ttl(name) > 0 for name in names)
    assert not harness.redis.hexists(harness.keys.queue("g", group_id), "task")


def test_as_many_as_are_leased_are_cancelled_at_once_group_by_group(harness):
    group_ids = [harness.add(str(number), group_size=4096) for number in range(3)]
    while harness.claim(256):
        pass

    assert harness.dispatcher.cancel(group_ids) == 3 * 4096
    assert harness.dispatcher.stats().num_leased == 0
    assert all(harness.group(group_id).is_closed for group_id in group_ids)


@pytest.mark.parametrize(
    ("limits", "finding"),
    [
        (Limits(sandbox_seconds=60), "wall_seconds"),
        (Limits(sandbox_seconds=139, wall_seconds=50, score_seconds=20), "together they are longer \\(140\\)"),
        (Limits(sandbox_seconds=60, wall_seconds=50), "together they are longer"),
        (Limits(wall_seconds=0), "above 0"),
    ],
)
def test_a_sandbox_that_ends_too_early_is_refused_and_nothing_is_queued(harness, limits, finding):
    with pytest.raises(BadInputError, match=finding):
        harness.dispatcher.submit([Task(id="fine", run="r"), Task(id="t", run="r", limits=limits)])

    assert harness.dispatcher.stats().num_queued == 0


def test_fewer_launched_than_wanted_is_refused(harness):
    with pytest.raises(BadInputError, match="launch from 3"):
        harness.dispatcher.submit([Task(id="t", run="r", group_size=3, launch=2)])
