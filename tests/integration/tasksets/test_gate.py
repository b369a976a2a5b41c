"""The gate: a fair task set passes, each defect of a task set is found, and what failed does not train."""

import asyncio
from pathlib import Path

import pytest

from agent_layer.errors import BadInputError
from agent_layer.schema import Task
from envs.sandbox import open_pool
from envs.tasksets import check_trainable, open_taskset
from envs.tasksets.gate.script_judge import ScriptJudge
from envs.tasksets.gate.trainable import find_report, save_report

from ...boxes import require_kind
from ...examining import examine


@pytest.fixture(autouse=True)
def _boxes(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    require_kind("namespace", "session")


def _check(name, **options):
    path = name if ":" in name or name.islower() else f"defective_sets:{name}"
    return examine(path, **options)


def test_a_fair_set_passes_and_may_train(tmp_path):
    report = _check("FairSet")
    task = Task(id="a", run="r", labels={"taskset": "fair", "taskset_version": report.version})

    assert report.is_passed, report.failures
    with pytest.raises(BadInputError, match="never checked"):
        check_trainable(tmp_path, [task])
    save_report(tmp_path, report)
    check_trainable(tmp_path, [task])
    assert find_report(tmp_path, "fair", report.version) == report
    assert find_report(tmp_path, "fair", "2") is None


def test_tasks_of_no_set_train_without_a_check(tmp_path):
    check_trainable(tmp_path, [Task(id="a", run="r")])


@pytest.mark.parametrize(
    ("name", "count", "code"),
    [
        ("LeakySet", 1, "cheats"),
        ("WrongReferenceSet", 1, "reference"),
        ("UnstableSet", 0, "unstable-tasks"),  # no task, so no script is judged
        ("OverlappingSet", 0, "split-overlap"),
        ("MoodySet", 1, "unstable-verdict"),
        ("DullSet", 1, "mutants"),
        ("ScarceSet", 1, "few-scripts"),
        ("RepetitiveSet", 1, "few-scripts"),
        ("PaddedSet", 1, "few-scripts"),
    ],
)
def test_a_defect_of_a_task_set_fails_its_check(tmp_path, name, count, code):
    report = _check(name, count=count)

    assert not report.is_passed
    assert code in report.codes
    save_report(tmp_path, report)
    with pytest.raises(BadInputError, match="it failed"):
        check_trainable(
            tmp_path, [Task(id="a", run="r", labels={"taskset": "fair", "taskset_version": report.version})]
        )


@pytest.mark.parametrize(("level", "least_cheats"), [(0, 25), pytest.param(1, 70, marks=pytest.mark.long)])
def test_code_repair_passes_at_its_first_levels(level, least_cheats):
    report = _check("repair", levels=[level], seed=2, compared=8)

    assert report.is_passed, report.failures
    assert report.counts["reference"] == (1, 1)
    assert report.counts["cheats"][1] >= least_cheats


@pytest.mark.long  # fast tests judge the same scripts without the gate
@pytest.mark.parametrize("name", ["arithmetic", "search"])
def test_sets_without_boxes_pass_at_all_levels_in_both_splits(name):
    report = _check(name, seed=3, count=2)

    assert report.is_passed, report.failures
    assert report.counts["reference"] == (8, 8)
    assert report.counts["mutants"][0] == report.counts["mutants"][1]


@pytest.mark.long
@pytest.mark.parametrize("level", range(4))
def test_chores_at_a_terminal_pass(level):
    report = _check("terminal", levels=[level], seed=4, count=1)

    assert report.is_passed, report.failures
    assert report.counts["mutants"][0] == report.counts["mutants"][1]


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
