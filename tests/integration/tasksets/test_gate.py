"""The gate: a fair task set passes, each defect of a task set is found, and what failed does not train."""

import asyncio
import os
from pathlib import Path

import pytest

from agent_layer.errors import BadInputError
from agent_layer.schema import Task
from envs.sandbox import open_pool
from envs.sandbox.registry import list_kind_names, make_kind
from envs.tasksets import open_taskset
from envs.tasksets.gate import GateOptions, ScriptJudge, check_taskset, check_trainable, find_report, save_report

REQUIRED = os.environ.get("AGENT_LAYER_REQUIRE", "").split(",")
ISOLATING = [name for name in list_kind_names() if name in ("namespace", "session")]


async def _works(name):
    kind = make_kind(name)
    try:
        return (await kind.probe()).works
    finally:
        await kind.close()


async def _any_works():
    return any([await _works(name) for name in ISOLATING])


@pytest.fixture(autouse=True)
def boxes(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    if not asyncio.run(_any_works()):
        (pytest.fail if set(ISOLATING) & set(REQUIRED) else pytest.skip)("no kind of sandbox isolates here")


def _check(name, **options):
    path = name if ":" in name or name == "repair" else f"defective_sets:{name}"
    return asyncio.run(check_taskset(path, GateOptions(**options), lambda _: None))


def test_a_fair_set_passes_and_may_train(tmp_path):
    report = _check("FairSet")
    task = Task(id="a", run="r", labels={"taskset": "fair", "taskset_version": "1"})

    assert report.is_passed, report.failures
    with pytest.raises(BadInputError, match="never checked"):
        check_trainable(tmp_path, [task])
    save_report(tmp_path, report)
    check_trainable(tmp_path, [task])
    assert find_report(tmp_path, "fair", "1") == report
    assert find_report(tmp_path, "fair", "2") is None


def test_tasks_of_no_set_train_without_a_check(tmp_path):
    check_trainable(tmp_path, [Task(id="a", run="r")])


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("LeakySet", "cheats"),
        ("WrongReferenceSet", "reference"),
        ("UnstableSet", "same tasks twice"),
        ("OverlappingSet", "splits are disjoint"),
        ("MoodySet", "same verdict twice"),
        ("DullSet", "mutants"),
        ("ScarceSet", "cheats"),
        ("RepetitiveSet", "cheats"),
        ("PaddedSet", "rewrites"),
    ],
)
def test_a_defect_of_a_task_set_fails_its_check(tmp_path, name, check):
    report = _check(name)

    assert not report.is_passed
    assert check in {failure.check for failure in report.failures}
    save_report(tmp_path, report)
    with pytest.raises(BadInputError, match="it failed"):
        check_trainable(tmp_path, [Task(id="a", run="r", labels={"taskset": "fair", "taskset_version": "1"})])


@pytest.mark.timeout(600)  # a minute of two idle cores, and of busy ones several
def test_code_repair_passes_at_its_first_levels():
    report = _check("repair", levels=[0, 1], seed=2)

    assert report.is_passed, report.failures
    assert report.counts["reference"] == (2, 2)
    assert report.counts["cheats"][1] > 100


def test_several_files_with_several_bugs_are_judged():
    taskset = open_taskset("repair")
    (task,) = taskset.tasks(split="eval", level=3, count=1)
    reference = taskset.solve(task)
    half = type(reference)(name="half", files=dict(list(reference.files.items())[:1]))

    async def judge():
        async with open_pool() as pool:
            scripts = [reference, half, taskset.rewrites(task)[0], taskset.cheats(task)[0]]
            return [await ScriptJudge(pool).judge(task, script) for script in scripts]

    assert [one.reward for one in asyncio.run(judge())] == [1.0, 0.0, 1.0, 0.0]
