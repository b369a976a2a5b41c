"""The catalogue of alarms: each has a case that fires and one that just does not, and healthy runs raise none."""

import random

import pytest

from agent_layer.errors import BadInputError
from agent_layer.health import StepCheck, find_unhealthy, set_live_limits
from agent_layer.health.checks import CHECKS
from agent_layer.health.evaluate import find_unhealthy_now
from agent_layer.health.measures import RunSnapshot

from .reports import METRICS, report, restart

LAST_STEP = 30


def odd(step):
    return step % 2


def swap(amount):
    """Success of two tasks that move against each other, the second by this share of the first."""
    return lambda step: {
        "by_task": {"a": 0.6, "b": 0.2 + 0.6 * odd(step), "c": 0.8 - 0.6 * odd(step) + amount * (step % 5)},
        "metrics": {"entropy": 0.5},
    }


def always(num_dead, success=1.0):
    return lambda _: {"success": success, "num_dead_groups": num_dead, "by_task": {"a": success}}


def just(**fields):
    return lambda _: fields


def metric(name, value):
    return lambda _: {"metrics": {name: value}}


STEPS = {
    "null_rewards": (just(num_null_rewards=16), just(num_null_rewards=15)),
    "untrainable": (just(untrainable={"greedy": 4}), just(untrainable={"greedy": 3})),
    "fake_zeros": (just(num_fake_zeros=4), just(num_fake_zeros=3)),
    "self_inflicted": (just(self_inflicted={"a": 7}), just(self_inflicted={"a": 6})),
    "capture_gaps": (just(num_gaps=1), just(num_gaps=0)),
    "dropped_steps": (just(num_dropped_steps=19), just(num_dropped_steps=18)),
    "forks": (just(num_forks=55), just(num_forks=54)),
    "stale_rollouts": (just(num_stale_rollouts=25), just(num_stale_rollouts=24)),
    "importance_tail": (
        metric("rollout_corr/rollout_is_ratio_fraction_low", 0.0901),
        metric("rollout_corr/rollout_is_ratio_fraction_low", 0.09),
    ),
    "rejected": (metric("rejected", 0.31), metric("rejected", 0.3)),
    "clip_fraction": (metric("actor/pg_clipfrac", 0.41), metric("actor/pg_clipfrac", 0.4)),
    "gradient": (metric("grad_norm", 1001.0), metric("grad_norm", 1000.0)),
    "logprob_gap": (metric("logprob_gap_mean", 0.051), metric("logprob_gap_mean", 0.05)),
    "entropy_low": (metric("entropy", 0.019), metric("entropy", 0.02)),
    "entropy_rise": (metric("entropy", METRICS["entropy"] + 1.01), metric("entropy", METRICS["entropy"] + 0.99)),
    "dead_groups": (just(num_dead_groups=6), just(num_dead_groups=5)),
    "always_succeeds": (always(6), always(5, success=0.95)),
    "length_drift": (just(num_tokens=600 * 3), just(num_tokens=600 * 2)),
    "success_gone": (just(by_task={"a": 0.6, "b": 0.0, "c": 0.5}), just(by_task={"a": 0.6, "b": 0.7, "c": 0.0})),
    "success_swaps": (swap(0.0), swap(0.3)),
    "restarts": (lambda step: {"restarts": [restart(step)]}, just()),
}
"""By alarm of steps: the fields of each step from the fault on, where it fires, and where it just does not."""

BUSY = {"now": 1000.0, "num_waiting": 5}
STEPPING = {"num_held": 3, "step_times": [100.0, 200.0, 300.0, 400.0]}
NOW = {
    "data_lost": ({"data_lost_at": 900.0}, {"data_lost_at": None}),
    "no_engine": ({"num_engines": 0}, {"num_engines": 1}),
    "refused": ({"is_refused": True}, {"is_refused": False}),
    "starved": ({"oldest_wait_seconds": 301.0}, {"oldest_wait_seconds": 300.0}),
    "unserved": (
        {"num_held": 1, "num_unserved": 1, "oldest_wait_seconds": 121.0},
        {"num_held": 1, "num_unserved": 1, "oldest_wait_seconds": 120.0},
    ),
    "stall": ({**STEPPING, "now": 1001.0}, {**STEPPING, "now": 1000.0}),
    "failing": ({"failure_rate": 0.31, "num_judged": 16}, {"failure_rate": 0.31, "num_judged": 15}),
    "lost_tasks": ({"num_accepted": 18, "num_dead": 1}, {"num_accepted": 19, "num_dead": 1}),
    "engine_behind": ({"engine_behind_seconds": 601.0}, {"engine_behind_seconds": 600.0}),
    "engine_held": ({"engine_held_seconds": 601.0}, {"engine_held_seconds": 600.0}),
}
"""By alarm of this moment: the facts where it fires, and where it just does not."""


def find(alarm, case):
    if not isinstance(alarm, StepCheck):
        return {one.name for one in find_unhealthy_now(RunSnapshot(**{**BUSY, **case}))}
    fault_at = LAST_STEP - max(alarm.steps, 5)
    reports = [report(step, **(case(step) if step > fault_at else {})) for step in range(1, LAST_STEP + 1)]
    return {one.name for one in find_unhealthy(reports)}


@pytest.mark.parametrize("alarm", CHECKS, ids=lambda alarm: alarm.name)
def test_each_alarm_fires_and_just_does_not(alarm):
    cases = STEPS if isinstance(alarm, StepCheck) else NOW
    assert alarm.name in cases, "add a case that fires, and one that just does not"
    firing, quiet = cases[alarm.name]

    assert alarm.name in find(alarm, firing)
    assert alarm.name not in find(alarm, quiet)


def test_no_case_is_of_an_alarm_that_is_gone():
    assert {one.name for one in CHECKS} == STEPS.keys() | NOW.keys()


def test_alarms_of_this_moment_never_stop_a_run():
    assert {one.name for one in CHECKS if not isinstance(one, StepCheck) and one.stop is not None} == set()


def test_limits_of_this_moment_come_from_a_setting():
    entries = {one.name: one for one in set_live_limits("starved=10m failing=0.5 stall=off unserved=90")}

    assert {name: entries[name].warn for name in ("starved", "failing", "unserved")} == {
        "starved": 600.0,
        "failing": 0.5,
        "unserved": 90.0,
    }
    assert "stall" not in entries
    assert {one.name for one in set_live_limits(None)} == NOW.keys()
    waits = RunSnapshot(**{**BUSY, "oldest_wait_seconds": 599.0})
    assert [one.name for one in find_unhealthy_now(waits)] == ["starved"]
    assert find_unhealthy_now(waits, list(entries.values())) == []


@pytest.mark.parametrize(
    "text", ["forks=1", "starved", "starved=", "starved=x", "starved=-1", "failing=nan", "failing=5m"]
)
def test_a_limit_that_is_none_is_refused_by_name(text):
    with pytest.raises(BadInputError, match=f"alarm limit '{text}'"):
        set_live_limits(text)


@pytest.mark.parametrize("name", ["starved", "unserved"])
def test_a_wait_counts_from_the_last_step_for_until_then_the_run_was_served(name):
    """The oldest group may have been queued long before, and have waited behind others."""
    facts = {"oldest_wait_seconds": 9e4, "num_unserved": int(name == "unserved"), "now": 1000.0}

    def find(last_step):
        found = find_unhealthy_now(RunSnapshot(**{**BUSY, **facts, "step_times": [last_step]}))
        return {one.name: one.value for one in found}.get(name)

    assert (find(900.0), find(600.0)) == (None, 400.0)


def test_a_finding_names_its_object_and_since_when():
    engine = {"engine_behind_seconds": 725.0, "engine_behind": "http://e:1", "now": 100_725.0}
    (behind,) = find_unhealthy_now(RunSnapshot(**engine))
    assert behind.headline == (
        "engine_behind of http://e:1 since 1970-01-02 03:46 UTC: time for which an engine serves an older version"
        " although a newer one is there: 12 min, limit 10 min"
    )
    assert (behind.since, behind.view, behind.filters) == (100_000.0, "fleet", {"engine": "http://e:1"})

    waits = {**BUSY, "num_held": 1, "num_unserved": 1, "unserved_needs": "gpu net", "oldest_wait_seconds": 121.0}
    assert [one.subject for one in find_unhealthy_now(RunSnapshot(**waits))] == ["gpu net"]

    (stall,) = find_unhealthy_now(RunSnapshot(**{**BUSY, **STEPPING, "now": 1001.0}))
    assert stall.since == STEPPING["step_times"][-1]

    gone = [report(step, by_task={"a": 0.7, "b": 0.6 * (step <= 20)}) for step in range(1, 31)]
    found = {one.name: one for one in find_unhealthy(gone)}["success_gone"]
    assert (found.subject, found.filters) == ("b", {"task": "b"})


@pytest.mark.parametrize(
    ("gaps", "named"),
    [
        ({"http://e:1": 0.001, "http://e:2": 0.9}, "http://e:2"),
        ({"http://e:1": 0.5, "http://e:2": 0.9}, None),
        ({"http://e:1": 0.001, "http://e:2": None}, "http://e:2"),
        ({"http://e:2": 0.9}, None),
        ({}, None),
    ],
    ids=["one stands out", "all differ alike", "one is not finite", "one alone", "not known"],
)
def test_a_gap_names_the_engine_that_stands_out(gaps, named):
    reports = [report(step, metrics={"logprob_gap_mean": 0.4}, gap_by_engine=gaps) for step in (1, 2)]

    (found,) = [one for one in find_unhealthy(reports) if one.name == "logprob_gap"]
    assert (found.subject, found.filters) == (named, {} if named is None else {"engine": named})


@pytest.mark.parametrize(
    "facts",
    [
        {"oldest_wait_seconds": 9e4, "is_paused": True, "num_unserved": 5},
        {"oldest_wait_seconds": 9e4, "num_held": 1},
        {"oldest_wait_seconds": 9e4, "num_accepted_lately": 1},
        {"num_waiting": 0, "step_times": [100.0, 200.0, 300.0, 400.0], "now": 9e9},
        {"num_dead": 15},
    ],
)
def test_a_run_that_is_paused_works_or_is_over_raises_none(facts):
    assert find_unhealthy_now(RunSnapshot(**{**BUSY, **facts})) == []


def test_success_that_was_learned_step_by_step_is_no_alarm_however_long_it_lasts():
    grown = [report(step, success=0.1 * step, by_task={"a": 0.1 * step}) for step in range(1, 10)]
    kept = [report(step, **always(6)(step)) for step in range(10, 260)]
    reports = [*grown, *kept]

    seen = {one.name for at in range(1, len(reports)) for one in find_unhealthy(reports[:at][-200:])}

    assert seen == set()


@pytest.mark.parametrize("seed", range(10))
def test_healthy_runs_raise_none(seed):
    dice = random.Random(seed)
    reports, tasks, at = [], {name: dice.uniform(-4, 0) for name in "abcdef"}, 0.0
    for step in range(1, 61):
        reports.append(healthy_step(dice, step, tasks))
        at = reports[-1].ended_at
        facts = RunSnapshot(
            now=at + dice.uniform(0, 120),
            num_waiting=dice.randrange(60),
            num_held=dice.randrange(1, 8),
            num_accepted=60 * step,
            num_accepted_lately=dice.randrange(60),
            num_dead=step // 8,
            oldest_wait_seconds=dice.uniform(0, 2000),
            num_judged=64,
            failure_rate=dice.uniform(0, 0.1),
            step_times=[one.ended_at for one in reports[-20:]],
            engine_behind_seconds=dice.uniform(0, 30),
            engine_held_seconds=dice.uniform(0, 30),
        )
        assert [*find_unhealthy(reports), *find_unhealthy_now(facts)] == []


def healthy_step(dice, step, tasks):
    """A step of a run that learns: each task at its own speed, with noise of six groups of ten."""
    chances = {name: 1 / (1 + 2.718 ** -(start + step / 12)) for name, start in tasks.items()}
    by_task = {name: sum(dice.random() < chance for _ in range(10)) / 10 for name, chance in chances.items()}
    success = sum(by_task.values()) / len(by_task)
    done = report(
        step,
        success=success,
        reward_mean=success,
        by_task=by_task,
        num_dead_groups=sum(one in (0.0, 1.0) for one in by_task.values()),
        num_fake_zeros=dice.random() < 0.1,
        num_null_rewards=dice.randrange(4),
        num_forks=dice.randrange(20),
        num_tokens=int(600 * (1 + step / 60) * dice.uniform(0.8, 1.2)),
        metrics={"entropy": 0.9 - 0.008 * step + dice.uniform(-0.05, 0.05), "grad_norm": dice.uniform(0.1, 3)},
    )
    return type(done)(**{**{name: getattr(done, name) for name in done.__struct_fields__}, "ended_at": 90.0 * step})
