"""Concurrent runs: shares, quotas, order, and a stop when too many attempts fail."""

from collections import Counter

import pytest

from agent_layer.errors import BadInputError


def test_runs_take_turns_however_much_one_of_them_asks(harness):
    for number in range(30):
        harness.add(f"a{number}", run="greedy")
    for number in range(3):
        harness.add(f"b{number}", run="modest")

    assert Counter(lease.task.run for lease in harness.claim(6)) == {"greedy": 3, "modest": 3}


def test_a_weight_is_a_share(harness):
    for number in range(40):
        harness.add(f"a{number}", run="heavy")
        harness.add(f"b{number}", run="light")
    harness.dispatcher.share("heavy", weight=3)

    assert Counter(lease.task.run for lease in harness.claim(40)) == {"heavy": 30, "light": 10}


def test_a_run_that_was_away_does_not_catch_up(harness):
    for number in range(50):
        harness.add(f"a{number}", run="steady")
    harness.claim(20)
    for number in range(30):
        harness.add(f"b{number}", run="new")

    assert Counter(lease.task.run for lease in harness.claim(20)) == {"steady": 10, "new": 10}


def test_a_quota_is_the_most_that_a_run_has_at_once(harness):
    for number in range(5):
        harness.add(f"t{number}")
    harness.dispatcher.share("r", quota=2)
    held = harness.claim(5)
    assert len(held) == 2

    harness.end(held[0])
    assert len(harness.claim(5)) == 1
    harness.dispatcher.share("r", quota=0)
    assert len(harness.claim(5)) == 2


@pytest.mark.parametrize(
    "share", [{"weight": 0}, {"weight": -1.0}, {"weight": 5e-324}, {"quota": -1}, {"quota": 1 << 63}]
)
def test_a_share_out_of_bounds_is_refused(harness, share):
    harness.add()

    with pytest.raises(BadInputError, match="expected a"):
        harness.dispatcher.share("r", **share)
    assert (harness.run().weight, harness.run().quota) == (1, None)


def test_long_tasks_begin_first(harness):
    harness.add("short", expected_seconds=2)
    harness.add("unknown")
    harness.add("long", expected_seconds=600)
    harness.add("longer", expected_seconds=3600)

    assert harness.claimed(4) == ["longer", "long", "short", "unknown"]


def test_of_two_long_tasks_the_longer_begins_first_however_little_longer(harness):
    harness.add("5 s", expected_seconds=5)
    harness.add("6 s", expected_seconds=6)

    assert harness.claimed(2) == ["6 s", "5 s"]


def test_what_took_long_before_begins_first_without_being_told(harness):
    harness.add("slow")
    (lease,) = harness.claim()
    harness.redis.hincrby(harness.keys.queue("r", lease.rollout_id), "began", -300_000)
    harness.end(lease)
    harness.queue.add([lease.task], 1)  # asked for again, behind another
    harness.add("quick")

    assert harness.claimed(2) == ["slow", "quick"]


def test_a_long_task_overtakes_a_bounded_number(harness):
    for number in range(1100):
        harness.add(f"t{number:04}")
    harness.add("long", expected_seconds=16)  # four doublings of a second: 1,024 places

    order = [lease.task.id for _ in range(5) for lease in harness.claim(256)]
    assert order.index("long") == 1100 - 1024


def test_what_is_trained_first_begins_first_however_long_others_take(harness):
    harness.redis.hset(harness.keys.policies("r"), "5", b"version")
    harness.add("next step, long", from_policy=5, expected_seconds=600)
    harness.add("this step", from_policy=4)
    harness.add("this step, long", from_policy=4, expected_seconds=600)

    assert harness.claimed(3) == ["this step, long", "this step", "next step, long"]


def test_a_task_waits_for_the_policy_that_it_is_meant_for(harness):
    harness.add("early", from_policy=0)
    harness.add("late", from_policy=3)
    assert harness.claimed(2) == []

    harness.redis.hset(harness.keys.policies("r"), "2", b"version")
    assert harness.claimed(2) == ["early"]
    harness.redis.hset(harness.keys.policies("r"), "10", b"version")
    assert harness.claimed(2) == ["late"]


def test_too_many_failures_stop_the_run_and_say_why(redis, keys, settings, harness):
    strict = settings.model_copy(update={"stop_failure_window": 10, "stop_failure_rate": 0.5, "max_attempts": 1})
    harness.queue = type(harness.queue)(redis, keys, strict)
    for number in range(30):
        harness.add(f"t{number}")
    for lease in harness.claim(5):
        harness.end(lease)
    for lease in harness.claim(5):
        harness.end(lease, "retry", error="infra: the GPU fell off the bus")
    assert harness.run().paused is None

    (lease,) = harness.claim()
    harness.end(lease, "retry", error="infra: the GPU fell off the bus")

    why = harness.run().paused
    assert "6 of the newest 10 attempts failed, more than stop_failure_rate (0.5) allows" in why
    assert "the GPU fell off the bus" in why
    assert harness.claim(5) == []
    assert harness.dispatcher.stats().paused_runs == ["r"]
    assert dict(harness.run().causes) == {"infra": 6}

    harness.dispatcher.resume("r")
    assert (harness.run().paused, harness.run().failure_rate) == (None, None)
    assert len(harness.claim(5)) == 5


def test_what_the_policy_did_and_what_was_given_back_are_no_failures(redis, keys, settings, harness):
    strict = settings.model_copy(update={"stop_failure_window": 4, "stop_failure_rate": 0.0})
    harness.queue = type(harness.queue)(redis, keys, strict)
    for number in range(8):
        harness.add(f"t{number}")
    for lease in harness.claim(4):
        harness.end(lease, "truncated")
    for lease in harness.claim(4):
        harness.end(lease, "release")

    assert (harness.run().paused, harness.run().failure_rate) == (None, 0.0)


def test_a_failed_scorer_is_a_failure_and_a_rollout_that_nobody_judges_is_none(redis, keys, settings, harness):
    strict = settings.model_copy(update={"stop_failure_window": 4, "stop_failure_rate": 0.5})
    harness.queue = type(harness.queue)(redis, keys, strict)
    for number in range(8):
        harness.add(f"t{number}")
    for lease in harness.claim(4):
        harness.end(lease, usable=False, error="")
    assert (harness.run().paused, harness.run().failure_rate) == (None, 0.0)

    for lease in harness.claim(4):
        harness.end(lease, usable=False, cause="verifier", error="ValueError: no answer")
    assert "verifier: ValueError: no answer" in harness.run().paused


def test_lapsed_leases_are_failures_too(redis, keys, settings, harness):
    strict = settings.model_copy(update={"stop_failure_window": 2, "stop_failure_rate": 0.5})
    harness.queue = type(harness.queue)(redis, keys, strict)
    harness.add("a", group_size=2)
    for lease in harness.claim(2, worker="w-3"):
        harness.lapse(lease)

    assert "w-3 sent no heartbeat" in harness.run().paused
    assert harness.run().num_lapsed == 2


def test_a_paused_run_tells_why(harness):
    harness.add()
    harness.dispatcher.pause("r", why="the sandbox host is rebuilt")

    assert harness.run().paused == "the sandbox host is rebuilt"
    assert harness.claim() == []


def test_a_draining_worker_is_given_nothing(harness):
    harness.add()
    harness.queue.heartbeat("w", b"{}", [])
    assert harness.dispatcher.drain(["w", "nobody"]) == ["w"]

    assert harness.queue.heartbeat("w", b"{}", []).is_draining
    assert harness.claim(worker="w") == []
    assert harness.dispatcher.workers()[0].is_draining
    assert len(harness.claim(worker="other")) == 1
    harness.queue.leave("w")
    assert not harness.queue.heartbeat("w", b"{}", []).is_draining


def test_a_claim_takes_back_what_lapsed_before_it_leases(harness):
    harness.add("first")
    harness.add("second")
    harness.dispatcher.share("r", quota=1)
    (lease,) = harness.claim()
    harness.redis.zadd(harness.keys.queue("leases"), {lease.rollout_id: 0})

    assert harness.claimed(2, worker="w-2") == ["first"]
    assert (harness.run().num_leased, harness.run().num_lapsed) == (1, 1)
