"""How a run learns and what fails in it, as the API tells it, against what Python counts over the same rows."""

import random
from collections import Counter, defaultdict
from statistics import fmean

import pytest

from agent_layer.schema import SELF_INFLICTED
from agent_layer.schema.rollout import Accepted, Outcome
from agent_layer.view.answers.lists import RoundLine
from agent_layer.view.reads.lists import FAILED
from agent_layer.view.reads.overviews.failures import error_kind
from agent_layer.view.reads.overviews.learning import find_regressions

from ...builders import attempt, call, sampled
from ...stored import write_segment


def test_points_are_those_of_the_rows(viewed):
    expected = defaultdict(list)
    for row in viewed.store.query(run="r0", limit=500).items:
        if row.accepted:
            expected[row.task_type, row.policy_max].append(row.reward)

    points = viewed.get("/api/v1/runs/r0/learning")["points"]

    assert {(one["key"], one["version"]): one["count"] for one in points} == {
        key: len(e) for key, e in expected.items()
    }
    for one in points:
        rewards = expected[one["key"], one["version"]]
        assert one["mean_reward"] == pytest.approx(fmean(rewards))
        assert one["success_rate"] == pytest.approx(fmean(reward > 0 for reward in rewards))
        request = "&".join(f"{name}={value}" for name, value in one["filters"].items())
        found = viewed.get(f"/api/v1/query?{request}&limit=500")["items"]
        assert sum(row["policy_max"] == one["version"] for row in found) == one["count"]


def test_a_round_that_passed_less_is_a_regression():
    def held(step, rate, num):
        return RoundLine(
            step=step,
            name="easy",
            round=str(step),
            policy_version=step,
            pass_rate=rate,
            reward_mean=rate,
            num_rewards=num,
            num_asked=num,
        )

    found = list(find_regressions([held(1, 0.5, 20), held(2, 0.9, 400), held(3, 0.5, 400), held(4, 0.48, 20)]))

    assert [(one.from_step, one.to_step, one.is_clear) for one in found] == [(3, 4, False), (2, 3, True)]


def test_failures_are_counted_by_fault_and_kind(fresh):
    dice = random.Random(0)
    kinds = defaultdict(int)
    before = {s: fresh.get(f"/api/v1/count?status={s}")["count"] for s in FAILED}
    for at in range(20):
        name, status = f"f.{at}-0", dice.choice(FAILED[:2])
        cause, error = dice.choice([("infra", f"infra: gateway {at} is gone"), ("user", f"user: no file 'x{at}'")])
        kinds[error.partition(":")[0]] += 1
        records = attempt(name, at=1000.0 + at, run="rf", status="running", task_type="odd")
        end = Outcome(
            trajectory_id=name, run="rf", status=status, cause=cause, error=error, ended_at=1001.0 + at, num_calls=0
        )
        write_segment(fresh.store, *records, end)

    answer = fresh.get("/api/v1/failures?run=rf")

    assert answer["num"] == answer["num_all"] == answer["num_read"] == 20
    assert {one["value"]: one["count"] for one in answer["by_cause"]} == dict(kinds)
    assert {one["kind"].partition(":")[0]: one["num"] for one in answer["errors"]} == dict(kinds)
    assert [row["trajectory_id"] for row in answer["newest"]] == [f"f.{at}-0" for at in range(19, -1, -1)]
    assert fresh.get("/api/v1/failures")["num"] == sum(before.values()) + 20
    assert fresh.get("/api/v1/failures?status=completed")["num"] == 0


def test_errors_of_a_kind_differ_by_numbers_and_names_only():
    assert error_kind("infra: engine 10.0.0.4:8000 gave 503\ntrace") == error_kind(
        "infra: engine 10.0.0.5:8000 gave 500"
    )
    assert error_kind("user: no key 'a'") == error_kind("user: no key 'b'") != error_kind("user: no file 'b'")
    assert error_kind(" \n") == "no error was recorded"


def test_values_are_sorted_by_the_size_of_their_numbers(fresh):
    for at, kind in enumerate(["v10", "v9", "v2", "v100"]):
        write_segment(fresh.store, *attempt(f"n.{at}-0", at=1.0, run="rn", task_type=kind, score=1.0))

    facets = fresh.get("/api/v1/facets?run=rn")["facets"]

    assert [one["value"] for one in facets["task_type"]] == ["v2", "v9", "v10", "v100"]


def test_self_inflicted_ends_are_counted_by_task_and_version_on_the_page_and_in_a_summary(fresh):
    dice, expected = random.Random(1), Counter()
    for at in range(30):
        task, version, is_own = dice.choice("ab"), dice.choice([1, 2]), dice.random() < 0.6
        name = f"si.{at}-0"
        calls = call(name, "a", sampled(7, version=version), run="si")
        records = attempt(name, *calls, run="si", status="running", score=0.0, task_id=task)
        ended = {"status": "truncated", "cause": "policy", "findings": [SELF_INFLICTED] if is_own else []}
        accepted = Accepted(trajectory_id=name, rollout_id=name[:-2], run="si", accepted_at=99.0)
        write_segment(
            fresh.store, *records, Outcome(trajectory_id=name, run="si", ended_at=98.0, num_calls=1, **ended), accepted
        )
        expected[task, version] += is_own

    answer = fresh.get("/api/v1/failures?run=si")["self_inflicted"]
    lines = fresh.store.summarise(["task", "policy"], run="si", finding=SELF_INFLICTED)
    by_task = fresh.store.summarise(["task"], run="si")
    (only,) = fresh.store.summarise(["task"], run="si", task="a")

    assert {(one["task_id"], one["version"]): one["num"] for one in answer} == dict(+expected)
    assert [one["num"] for one in answer] == sorted(expected.values(), reverse=True)
    assert {(line.by["task"], line.by["policy"]): line.count for line in lines} == dict(+expected)
    assert sum(line.count for line in by_task) == 30
    assert (only.by["task"], only.count) == ("a", next(line.count for line in by_task if line.by["task"] == "a"))
    assert fresh.get("/api/v1/failures?run=none")["self_inflicted"] == []
