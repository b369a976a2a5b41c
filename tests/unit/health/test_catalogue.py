"""The catalogue: every entry stops a run within five steps of its fault, and a good run has no finding."""

import msgspec
import pytest

from agent_layer.errors import BadInputError
from agent_layer.health import STEP_CHECKS, HealthLimits, find_unhealthy, set_limits
from agent_layer.times import format_time

from .reports import report, restart

GOOD_STEPS = 24


def odd(step):
    return step % 2


FAULTS = {
    "null_rewards": lambda _: {"num_null_rewards": 40},
    "untrainable": lambda _: {"untrainable": {"greedy": 30, "no_logprobs": 1}},
    "fake_zeros": lambda _: {"num_fake_zeros": 20},
    "self_inflicted": lambda _: {"self_inflicted": {"a": 20}},
    "capture_gaps": lambda _: {"num_gaps": 9},
    "dropped_steps": lambda _: {"num_dropped_steps": 90},
    "forks": lambda _: {"num_forks": 120},
    "stale_rollouts": lambda _: {"num_stale_rollouts": 50},
    "importance_tail": lambda _: {"metrics": {"rollout_corr/rollout_is_ratio_fraction_low": 0.4}},
    "rejected": lambda _: {"metrics": {"rejected": 1.0}},
    "clip_fraction": lambda _: {"metrics": {"actor/pg_clipfrac": 0.8}},
    "gradient": lambda _: {"metrics": {"grad_norm": None}},
    "logprob_gap": lambda _: {"metrics": {"logprob_gap_mean": 0.7}},
    "entropy_low": lambda _: {"metrics": {"entropy": 0.001}},
    "entropy_rise": lambda _: {"metrics": {"entropy": 3.5}},
    "dead_groups": lambda _: {"num_dead_groups": 6},
    "always_succeeds": lambda _: {"success": 1.0, "num_dead_groups": 6},
    "length_drift": lambda _: {"num_tokens": 6000},
    "success_gone": lambda _: {"by_task": {"a": 0.6, "b": 0.9, "c": 0.0}},
    "success_swaps": lambda step: {
        "by_task": {"a": 0.6, "b": float(odd(step)), "c": float(not odd(step))},
        "metrics": {"entropy": 0.5},
    },
    "restarts": lambda step: {"restarts": [restart(step)]},
}
"""By entry: what is wrong with each step from the fault on."""

STRICTER = {
    "self_inflicted": HealthLimits(stop=0.2),
    "forks": HealthLimits(stop=0.6),
    "always_succeeds": HealthLimits(stop=0.3, warn=0.2),
    "success_swaps": HealthLimits(stop=-0.8, steps=5),
    "restarts": HealthLimits(stop=0),
}
"""Entries that only warn unless a configuration makes them stop."""


def good_run(num_steps=GOOD_STEPS):
    return [report(step, by_task={"a": 0.6, "b": 0.7, "c": 0.9}) for step in range(1, num_steps + 1)]


def first_stop(name, limits):
    """Steps with the fault until the run is stopped for it; None: it is not, within five."""
    reports = good_run()
    for number in range(1, 6):
        reports.append(report(GOOD_STEPS + number, **FAULTS[name](number)))
        found = find_unhealthy(reports, limits)
        if any(one.name == name and one.level == "stop" for one in found):
            return number
    return None


@pytest.mark.parametrize("name", [entry.name for entry in STEP_CHECKS])
def test_every_fault_stops_a_run_within_five_steps(name):
    assert first_stop(name, set_limits({name: STRICTER[name]} if name in STRICTER else {})) is not None


def test_only_these_entries_never_stop_by_default():
    assert {entry.name for entry in STEP_CHECKS if entry.stop is None} == set(STRICTER)


@pytest.mark.parametrize("name", [entry.name for entry in STEP_CHECKS])
def test_an_entry_that_is_off_finds_nothing(name):
    for off in ("off", False):
        assert first_stop(name, set_limits({name: off})) is None


def test_a_good_run_has_no_finding_at_any_step():
    reports = good_run(60)

    assert [find_unhealthy(reports[:number]) for number in range(1, 61)] == [[]] * 60


def test_a_run_that_succeeds_may_have_equal_rewards_and_no_entropy():
    reports = [
        report(step, success=0.98, num_dead_groups=6, by_task={"a": 0.98}, metrics={"entropy": 0.001})
        for step in range(1, 12)
    ]

    assert find_unhealthy(reports) == []


def test_rewards_that_were_never_below_success_silence_nothing():
    reports = [
        report(step, success=1.0, num_dead_groups=6, by_task={"a": 1.0}, metrics={"entropy": 0.001})
        for step in range(1, 12)
    ]

    assert {one.name for one in find_unhealthy(reports)} >= {"dead_groups", "entropy_low"}


def test_a_fault_of_fewer_steps_than_the_window_is_no_finding():
    fault = {"num_fake_zeros": 20}
    reports = [*good_run(), report(25, **fault), report(26, **fault), report(27), report(28, **fault)]

    assert [find_unhealthy(reports[:number]) for number in (25, 26, 27, 28)] == [[]] * 4


def test_between_warning_and_stop_it_warns_and_the_worst_comes_first():
    reports = [report(step, num_fake_zeros=6, num_gaps=60) for step in (1, 2, 3)]

    assert [(one.name, one.level) for one in find_unhealthy(reports)] == [
        ("capture_gaps", "stop"),
        ("fake_zeros", "warn"),
    ]


def test_a_finding_says_what_since_when_and_what_to_do():
    reports = [*good_run(), *(report(24 + number, num_fake_zeros=20) for number in (1, 2, 3))]
    (found,) = find_unhealthy(reports)

    assert str(found) == (
        "fake_zeros since step 25: rollouts with reward 0 whose policy made no call, or whose last call failed: 0.333"
        " (share of rollouts), limit 0.25. Failures of the infrastructure are scored as failures of the policy, which"
        " learns to avoid what it did not do. Let the scorer return None for them; 'agent-layer query --reward 0..0'"
        " lists them."
    )
    assert (found.since, found.view, found.filters) == (
        reports[-3].ended_at,
        "trajectories",
        {"reward": "0..0", "accepted": "1", "since": format_time(reports[-4].ended_at)},
    )
    reports[-1] = msgspec.structs.replace(reports[-1], health=[found])
    (later,) = find_unhealthy([*reports, report(28, num_fake_zeros=20)])
    assert later.since_step == 25


def test_what_was_before_a_restart_does_not_stop_the_run_again():
    reports = [*good_run(), *(report(24 + number, num_fake_zeros=20) for number in range(1, 6))]
    stopped = reports[:27]
    assert find_unhealthy(stopped)

    again = [find_unhealthy(reports[:number], started_at=27) for number in (28, 29)]

    assert again == [[], []]


def test_what_is_not_known_is_no_finding():
    empty = [msgspec.structs.replace(report(step), metrics={}, success_by_task={}, num_rollouts=0) for step in (1, 2)]

    assert find_unhealthy(empty) == []


def test_a_number_that_is_not_finite_is_stored_as_not_known():
    reports = [report(step, metrics={"grad_norm": None}) for step in (1, 2, 3)]
    (found,) = find_unhealthy(reports)

    assert (found.name, found.level, found.value) == ("gradient", "stop", None)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"fork": HealthLimits(stop=0.1)}, "health: expected names among .*forks.*, found 'fork'"),
        ({"forks": "on"}, "health.forks: expected 'off' or some of warn, stop and steps, found 'on'"),
        ({"forks": True}, "health.forks: expected 'off'"),
        ({"forks": HealthLimits(warn=0.5, stop=0.1)}, "health.forks: expected a stop of at least the warning 0.5"),
        ({"entropy_low": HealthLimits(warn=0.1, stop=0.2)}, "health.entropy_low: expected a stop of at most the"),
    ],
)
def test_a_limit_that_is_misspelt_or_contradicts_another_is_refused(config, message):
    with pytest.raises(BadInputError, match=message):
        set_limits(config)


def test_limits_that_are_left_out_stay():
    (before,) = (entry for entry in STEP_CHECKS if entry.name == "null_rewards")
    (after,) = (entry for entry in set_limits({"null_rewards": HealthLimits(stop=None)}) if entry.name == before.name)

    assert (after.warn, after.stop, after.steps) == (before.warn, None, before.steps)


def test_a_window_that_no_run_remembers_is_refused_where_it_is_read():
    with pytest.raises(msgspec.ValidationError, match=r"<= 100 - at `\$\.steps`"):
        msgspec.convert({"steps": 500}, HealthLimits)


def test_a_stop_may_be_stricter_than_the_warning_of_the_catalogue():
    assert first_stop("forks", set_limits({"forks": HealthLimits(stop=0.1, steps=1)})) == 1
