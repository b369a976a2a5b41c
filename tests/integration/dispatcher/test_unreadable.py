"""A worker skips tasks that it cannot decode, such as those of a later version."""

import msgspec
import pytest

from agent_layer.errors import CorruptRecordError


@pytest.fixture
def settings(settings):
    """What was passed over or failed may be claimed again soon."""
    return settings.model_copy(update={"lease_seconds": 0.02, "retry_base_seconds": 0.02, "max_attempts": 3})


def spoil(desk, group_id):
    """Write the group's task as a later version might; return the original."""
    key = desk.keys.queue("g", group_id)
    task = desk.redis.hget(key, "task")
    desk.redis.hset(key, "task", msgspec.msgpack.encode(msgspec.msgpack.decode(task) | {"needs": 7}))
    return task


def pass_over(desk, num):
    """Claim unreadable tasks ``num`` times, without a pause."""
    for _ in range(num):
        assert desk.claim(8) == []
        for rollout_id in desk.redis.zrange(desk.keys.queue("delayed"), 0, -1):
            desk.redis.zadd(desk.keys.queue("delayed"), {rollout_id: 0})


def test_the_others_are_given_out_and_it_is_dead_with_the_reason_when_nobody_can_read_it(desk, wait_until):
    later, now = desk.add("later"), desk.add("now")
    spoil(desk, later)

    (lease,) = desk.claim(8)
    assert desk.end(lease) is None
    (dead,) = wait_until(lambda: desk.claim(8, wait_seconds=0.1) or desk.dispatcher.dead())

    assert (lease.group_id, dead.rollout_id, dead.num_failures) == (now, f"{later}.0", 3)
    assert set(dead.errors) == {"infra: this version cannot read the task: Expected `array`, got `int` - at `$.needs`"}
    assert desk.run().causes == [("infra", 3)]


def test_many_of_them_pause_no_run(desk):
    for number in range(64):
        spoil(desk, desk.add(f"t{number}"))

    pass_over(desk, 8)

    assert desk.run().paused is None
    assert desk.run().causes == []


def test_an_attempt_that_goes_on_keeps_its_checkpoint_for_whoever_can_read_it(desk):
    group_id = desk.add()
    (lease,) = desk.claim()
    desk.queue.checkpoint(lease, "c-1")
    desk.end(lease, "pause", error="")
    task = spoil(desk, group_id)

    pass_over(desk, 40)

    (state,) = desk.dispatcher.rollouts([group_id])
    assert (state.status, state.checkpoint, state.num_failures, len(state.errors)) == ("queued", "c-1", 0, 1)
    desk.redis.hset(desk.keys.queue("g", group_id), "task", task)
    (again,) = desk.claim()
    assert (again.attempt, again.checkpoint) == (0, "c-1")


def test_of_the_dead_the_others_are_tried_again(desk):
    ids = [desk.give_up(name) for name in ("a", "b", "c")]
    spoil(desk, ids[1].rpartition(".")[0])

    with pytest.raises(CorruptRecordError, match=r"^b\.\w+: expected tasks that this version can read"):
        desk.dispatcher.retry_dead(ids)

    assert [state.rollout_id for state in desk.dispatcher.dead()] == [ids[1]]
    assert sorted(lease.task.id[0] for lease in desk.claim(8)) == ["a", "c"]
    assert desk.dispatcher.drop_dead([ids[1]]) == 1
