"""A worker skips tasks that it cannot decode, such as those of a later version."""

import msgspec
import pytest

from agent_layer.errors import CorruptRecordError


@pytest.fixture
def settings(settings):
    """What was passed over or failed may be claimed again soon."""
    return settings.model_copy(update={"lease_seconds": 0.02, "retry_base_seconds": 0.02, "max_attempts": 3})


def spoil(harness, group_id):
    """Write the group's task as a later version might; return the original."""
    key = harness.keys.queue("g", group_id)
    task = harness.redis.hget(key, "task")
    harness.redis.hset(key, "task", msgspec.msgpack.encode(msgspec.msgpack.decode(task) | {"needs": 7}))
    return task


def pass_over(harness, num):
    """Claim unreadable tasks ``num`` times, without a pause."""
    for _ in range(num):
        assert harness.claim(8) == []
        for rollout_id in harness.redis.zrange(harness.keys.queue("delayed"), 0, -1):
            harness.redis.zadd(harness.keys.queue("delayed"), {rollout_id: 0})


def test_the_others_are_given_out_and_it_is_dead_with_the_reason_when_nobody_can_read_it(harness, wait_until):
    later, now = harness.add("later"), harness.add("now")
    spoil(harness, later)

    (lease,) = harness.claim(8)
    assert harness.end(lease) is None
    (dead,) = wait_until(lambda: harness.claim(8, wait_seconds=0.1) or harness.dispatcher.dead())

    assert (lease.group_id, dead.rollout_id, dead.num_failures) == (now, f"{later}.0", 3)
    assert set(dead.errors) == {"infra: this version cannot read the task: Expected `array`, got `int` - at `$.needs`"}
    assert harness.run().causes == [("infra", 3)]


def test_many_of_them_pause_no_run(harness):
    for number in range(64):
        spoil(harness, harness.add(f"t{number}"))

    pass_over(harness, 8)

    assert harness.run().paused is None
    assert harness.run().causes == []


def test_an_attempt_that_goes_on_keeps_its_checkpoint_for_whoever_can_read_it(harness):
    group_id = harness.add()
    (lease,) = harness.claim()
    harness.queue.checkpoint(lease, "c-1")
    harness.end(lease, "pause", error="")
    task = spoil(harness, group_id)

    pass_over(harness, 40)

    (state,) = harness.dispatcher.rollouts([group_id])
    assert (state.status, state.checkpoint, state.num_failures, len(state.errors)) == ("queued", "c-1", 0, 1)
    harness.redis.hset(harness.keys.queue("g", group_id), "task", task)
    (again,) = harness.claim()
    assert (again.attempt, again.checkpoint) == (0, "c-1")


def test_of_the_dead_the_others_are_tried_again(harness):
    ids = [harness.give_up(name) for name in ("a", "b", "c")]
    spoil(harness, ids[1].rpartition(".")[0])

    with pytest.raises(CorruptRecordError, match=r"^b\.\w+: expected tasks that this version can read"):
        harness.dispatcher.retry_dead(ids)

    assert [state.rollout_id for state in harness.dispatcher.dead()] == [ids[1]]
    assert sorted(lease.task.id[0] for lease in harness.claim(8)) == ["a", "c"]
    assert harness.dispatcher.drop_dead([ids[1]]) == 1
