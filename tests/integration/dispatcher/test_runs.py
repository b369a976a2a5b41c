"""Concurrent runs: shares, quotas, order, and a stop when too many attempts fail."""

from collections import Counter

import pytest

from agent_layer.errors import BadInputError


def test_runs_take_turns_however_much_one_of_them_asks(desk):
    for number in range(30):
        desk.add(f"a{number}", run="greedy")
    for number in range(3):
        desk.add(f"b{number}", run="modest")

    assert Counter(lease.task.run for lease in desk.claim(6)) == {"greedy": 3, "modest": 3}


def test_a_weight_is_a_share(desk):
    for number in range(40):
        desk.add(f"a{number}", run="heavy")
        desk.add(f"b{number}", run="light")
    desk.dispatcher.share("heavy", weight=3)

    assert Counter(lease.task.run for lease in desk.claim(40)) == {"heavy": 30, "light": 10}


def test_a_run_that_was_away_does_not_catch_up(desk):
    for number in range(50):
        desk.add(f"a{number}", run="steady")
    desk.claim(20)
    for number in range(30):
        desk.add(f"b{number}", run="new")

    assert Counter(lease.task.run for lease in desk.claim(20)) == {"steady": 10, "new": 10}


def test_a_quota_is_the_most_that_a_run_has_at_once(desk):
    for number in range(5):
        desk.add(f"t{number}")
    desk.dispatcher.share("r", quota=2)
    held = desk.claim(5)
    assert len(held) == 2

    desk.end(held[0])
    assert len(desk.claim(5)) == 1
    desk.dispatcher.share("r", quota=0)
    assert len(desk.claim(5)) == 2


@pytest.mark.parametrize(
    "share", [{"weight": 0}, {"weight": -1.0}, {"weight": 5e-324}, {"quota": -1}, {"quota": 1 << 63}]
)
def test_a_share_out_of_bounds_is_refused(desk, share):
    desk.add()

    with pytest.raises(BadInputError, match="expected a"):
        desk.dispatcher.share("r", **share)
    assert (desk.run().weight, desk.run().quota) == (1, None)


def test_long_tasks_begin_first(desk):
    desk.add("short", expected_seconds=2)
    desk.add("unknown")
    desk.add("long", expected_seconds=600)
    desk.add("longer", expected_seconds=3600)

    assert desk.claimed(4) == ["longer", "long", "short", "unknown"]


def test_of_two_long_tasks_the_longer_begins_first_however_little_longer(desk):
    desk.add("5 s", expected_seconds=5)
    desk.add("6 s", expected_seconds=6)

    assert desk.claimed(2) == ["6 s", "5 s"]


def test_what_took_long_before_begins_first_without_being_told(desk):
    desk.add("slow")
    (lease,) = desk.claim()
    desk.redis.hincrby(desk.keys.queue("r", lease.rollout_id), "began", -300_000)
    desk.end(lease)
    desk.queue.add([lease.task], 1)  # asked for again, behind another
    desk.add("quick")

    assert desk.claimed(2) == ["slow", "quick"]


def test_a_long_task_overtakes_a_bounded_number(desk):
    for number in range(1100):
        desk.add(f"t{number:04}")
    desk.add("long", expected_seconds=16)  # four doublings of a second: 1,024 places

    order = [lease.task.id for _ in range(5) for lease in desk.claim(256)]
    assert order.index("long") == 1100 - 1024


def test_what_is_trained_first_begins_first_however_long_others_take(desk):
    desk.redis.hset(desk.keys.policies("r"), "5", b"version")
    desk.add("next step, long", from_policy=5, expected_seconds=600)
    desk.add("this step", from_policy=4)
    desk.add("this step, long", from_policy=4, expected_seconds=600)

    assert desk.claimed(3) == ["this step, long", "this step", "next step, long"]


def test_a_task_waits_for_the_policy_that_it_is_meant_for(desk):
    desk.add("early", from_policy=0)
    desk.add("late", from_policy=3)
    assert desk.claimed(2) == []

    desk.redis.hset(desk.keys.policies("r"), "2", b"version")
    assert desk.claimed(2) == ["early"]
    desk.redis.hset(desk.keys.policies("r"), "10", b"version")
    assert desk.claimed(2) == ["late"]


def test_too_many_failures_stop_the_run_and_say_why(redis, keys, settings, desk):
    strict = settings.model_copy(update={"stop_failure_window": 10, "stop_failure_rate": 0.5, "max_attempts": 1})
    desk.queue = type(desk.queue)(redis, keys, strict)
    for number in range(30):
        desk.add(f"t{number}")
    for lease in desk.claim(5):
        desk.end(lease)
    for lease in desk.claim(5):
        desk.end(lease, "retry", error="infra: the GPU fell off the bus")
    assert desk.run().paused is None

    (lease,) = desk.claim()
    desk.end(lease, "retry", error="infra: the GPU fell off the bus")

    why = desk.run().paused
    assert "6 of the newest 10 attempts failed, more than stop_failure_rate (0.5) allows" in why
    assert "the GPU fell off the bus" in why
    assert desk.claim(5) == []
    assert desk.dispatcher.stats().paused_runs == ["r"]
    assert dict(desk.run().causes) == {"infra": 6}

    desk.dispatcher.resume("r")
    assert (desk.run().paused, desk.run().failure_rate) == (None, None)
    assert len(desk.claim(5)) == 5


def test_what_the_policy_did_and_what_was_given_back_are_no_failures(redis, keys, settings, desk):
    strict = settings.model_copy(update={"stop_failure_window": 4, "stop_failure_rate": 0.0})
    desk.queue = type(desk.queue)(redis, keys, strict)
    for number in range(8):
        desk.add(f"t{number}")
    for lease in desk.claim(4):
        desk.end(lease, "truncated")
    for lease in desk.claim(4):
        desk.end(lease, "release")

    assert (desk.run().paused, desk.run().failure_rate) == (None, 0.0)


def test_a_failed_scorer_is_a_failure_and_a_rollout_that_nobody_judges_is_none(redis, keys, settings, desk):
    strict = settings.model_copy(update={"stop_failure_window": 4, "stop_failure_rate": 0.5})
    desk.queue = type(desk.queue)(redis, keys, strict)
    for number in range(8):
        desk.add(f"t{number}")
    for lease in desk.claim(4):
        desk.end(lease, usable=False, error="")
    assert (desk.run().paused, desk.run().failure_rate) == (None, 0.0)

    for lease in desk.claim(4):
        desk.end(lease, usable=False, cause="verifier", error="ValueError: no answer")
    assert "verifier: ValueError: no answer" in desk.run().paused


def test_lapsed_leases_are_failures_too(redis, keys, settings, desk):
    strict = settings.model_copy(update={"stop_failure_window": 2, "stop_failure_rate": 0.5})
    desk.queue = type(desk.queue)(redis, keys, strict)
    desk.add("a", group_size=2)
    for lease in desk.claim(2, worker="w-3"):
        desk.lapse(lease)

    assert "w-3 sent no heartbeat" in desk.run().paused
    assert desk.run().num_lapsed == 2


def test_a_paused_run_tells_why(desk):
    desk.add()
    desk.dispatcher.pause("r", why="the sandbox host is rebuilt")

    assert desk.run().paused == "the sandbox host is rebuilt"
    assert desk.claim() == []


def test_a_draining_worker_is_given_nothing(desk):
    desk.add()
    desk.queue.heartbeat("w", b"{}", [])
    assert desk.dispatcher.drain(["w", "nobody"]) == ["w"]

    assert desk.queue.heartbeat("w", b"{}", []).is_draining
    assert desk.claim(worker="w") == []
    assert desk.dispatcher.workers()[0].is_draining
    assert len(desk.claim(worker="other")) == 1
    desk.queue.leave("w")
    assert not desk.queue.heartbeat("w", b"{}", []).is_draining


def test_a_claim_takes_back_what_lapsed_before_it_leases(desk):
    desk.add("first")
    desk.add("second")
    desk.dispatcher.share("r", quota=1)
    (lease,) = desk.claim()
    desk.redis.zadd(desk.keys.queue("leases"), {lease.rollout_id: 0})

    assert desk.claimed(2, worker="w-2") == ["first"]
    assert (desk.run().num_leased, desk.run().num_lapsed) == (1, 1)
