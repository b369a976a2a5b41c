"""The audit: each planted defect of a task set is named by its code and by no other, and good sets have none."""

import asyncio
import json
import time
from pathlib import Path

import msgspec
import pytest

from agent_layer.dispatcher import FILE_SET, find_verdict, identify_file
from agent_layer.errors import BadInputError
from envs.tasksets import check_trainable, save_report, write_task_line
from envs.tasksets.gate.elsewhere import PLACES
from envs.tasksets.gate.gate import Examination, GateOptions
from envs.tasksets.gate.report import CODES
from envs.tasksets.sources import open_source

from ...boxes import require_kind
from ...examining import examine
from . import planted_sets as planted

pytestmark = pytest.mark.usefixtures("planted_here")
NEED_PLACES = {planted.HashDependent, planted.TimeDependent, planted.Dated, planted.Unstable}


@pytest.fixture
def planted_here(monkeypatch):
    """Let other processes import the planted sets, and know what this one is like."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setenv("PLANTED_HASH", str(hash("planted")))
    monkeypatch.setenv("PLANTED_TIME", str(time.time()))


def audit(name, **options):
    path = name if isinstance(name, str) else f"planted_sets:{name.__name__}"
    given = {"count": 6, "compared": 60, **options}
    return examine(path, kind="audit", **given)


def named(report):
    return {one.code for one in report.findings}


@pytest.mark.parametrize("kind", [one for one in planted.BAD if one not in NEED_PLACES])
def test_each_planted_defect_is_named_and_nothing_else(kind):
    report = audit(kind, places=())

    assert (report.verdict, named(report)) == ("failed", planted.BAD[kind]), report.findings


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        (planted.HashDependent, 0),
        (planted.TimeDependent, 1),
        pytest.param(planted.Dated, 1, marks=pytest.mark.long),
        pytest.param(planted.Unstable, 0, marks=pytest.mark.long),
    ],
)
def test_what_depends_on_its_process_is_named(kind, place):
    report = audit(kind, count=1, places=PLACES[place : place + 1])

    assert (report.verdict, named(report)) == ("failed", planted.BAD[kind]), report.findings


@pytest.mark.parametrize("kind", planted.GOOD)
def test_good_sets_have_no_finding(kind):
    report = audit(kind, places=())

    assert (report.verdict, report.findings) == ("passed", [])


@pytest.mark.long
@pytest.mark.parametrize("kind", [*planted.BAD, *planted.GOOD])
def test_other_processes_add_no_finding(kind):
    assert named(audit(kind)) == planted.BAD.get(kind, set())


@pytest.mark.long
@pytest.mark.parametrize("kind", [planted.Programs, *planted.BAD_CODE])
def test_code_that_fails_must_not_pass(kind):
    require_kind("namespace", "session")

    report = audit(kind, count=1, compared=20, places=())

    assert set(report.codes) == {planted.BAD_CODE[kind]} if kind in planted.BAD_CODE else report.findings == []


@pytest.mark.long
@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("name", ["arithmetic", "search", "terminal", "repair"])
def test_our_own_sets_have_no_finding(name, level):
    require_kind("namespace", "session")

    report = audit(name, levels=[level], count=1, compared=40)

    assert report.failures == []
    assert {one.code for one in report.findings} <= {"duplicates"}  # by chance: a set without end


def test_equal_seeds_audit_equal_samples_and_others_do_not():
    def scored(seed):
        examination = Examination(
            "planted_sets:WrongReference", GateOptions(kind="audit", seed=seed, count=4, places=()), lambda _: None
        )
        asyncio.run(examination.run())
        return [one.tasks for one in examination.report().findings]

    assert scored(3) == scored(3)
    assert len(scored(3)) == 4
    assert scored(3) != scored(4)


def test_a_verdict_is_stored_and_a_failed_set_does_not_train(tmp_path):
    report = audit(planted.Named, places=())
    task = next(iter(planted.Named().tasks(split="train")))
    labels = {"taskset": "planted", "taskset_version": report.version}
    labelled = msgspec.structs.replace(task, labels=labels)

    save_report(tmp_path, report)

    with pytest.raises(BadInputError, match=r"it failed on .*, leak; "):
        check_trainable(tmp_path, [labelled])
    save_report(tmp_path, audit(planted.Sums, places=()))
    check_trainable(tmp_path, [labelled])


def _write(path, tasks):
    lines = [
        {"id": str(at), "input": text, "grading": {"answer": right}, "scorer": "planted_sets:score_equal"}
        for at, (text, right) in enumerate(tasks)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_file_is_known_by_its_content_and_passes_without_its_bad_tasks(tmp_path):
    path = _write(
        tmp_path / "mine.jsonl", [(f"Say {n * n + 7919} twice", n) for n in range(9)] + [("Say 7919 twice", 0)]
    )

    report = audit(str(path), places=(), count=20)
    save_report(tmp_path, report)

    assert (report.taskset, report.codes, report.leave_out) == (FILE_SET, ["duplicates"], ["9"])
    assert find_verdict(tmp_path, *identify_file(path)).is_mendable
    with pytest.raises(BadInputError, match=r"this file: .*duplicates.*--unchecked"):
        check_trainable(tmp_path, [], [identify_file(path)])
    path.write_text(path.read_text().partition('{"id": "9"')[0])
    check_trainable(tmp_path, [], [identify_file(path)])


def test_files_named_so_are_held_out(tmp_path):
    _write(tmp_path / "train.jsonl", [("a", 1), ("b", 2)])
    _write(tmp_path / "my-test.jsonl", [("c", 1), ("b", 2)])

    report = audit(str(tmp_path), places=())

    assert ("split-overlap", ["1"]) in [(one.code, one.tasks) for one in report.findings]


def test_a_set_is_found_by_file_and_module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "one_set.py").write_text("from planted_sets import Sums\nclass Mine(Sums):\n    pass\n")
    (tmp_path / "two_sets.py").write_text("from planted_sets import Sums\nclass A(Sums): pass\nclass B(Sums): pass\n")

    assert type(open_source(str(tmp_path / "one_set.py"))).__name__ == "Mine"
    assert type(open_source("one_set")).__name__ == "Mine"
    with pytest.raises(BadInputError, match="expected one task set, found A, B"):
        open_source("two_sets")
    with pytest.raises(BadInputError, match="no_such_set"):
        open_source("no_such_set")


def test_changed_code_has_no_verdict(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "own_set.py"
    path.write_text("from planted_sets import Sums\nclass Mine(Sums):\n    pass\n")
    taskset = open_source(str(path))
    task = next(taskset.tasks(split="train"))
    save_report(tmp_path, audit(str(path), places=()))

    check_trainable(tmp_path, [_read_back(task, taskset)])
    path.write_text(path.read_text().replace("pass", "scorer = 'planted_sets:score_start'"))

    with pytest.raises(BadInputError, match="never checked here"):
        check_trainable(tmp_path, [_read_back(task, taskset)])


def _read_back(task, taskset):
    labels = json.loads(write_task_line(task, taskset))["labels"]
    return msgspec.structs.replace(task, labels=labels)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("def tasks(self, **_): return iter(())", "expected tasks, found none"),
        ("def fill(self, task, rng, index): return {}['row']", r"tasks of level 0, split train failed with KeyError"),
        ("def solve(self, task): return {}['row']", r"solve of task 'train-0-0' failed with KeyError"),
        ("def cheats(self, task): return {}['row']", r"cheats of task .* failed with KeyError"),
    ],
)
def test_a_set_that_fails_itself_is_named(tmp_path, monkeypatch, body, error):
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"broken_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(f"from planted_sets import Sums\nclass Broken(Sums):\n    {body}\n")

    with pytest.raises(BadInputError, match=error):
        audit(name, places=(), compared=8)


def test_an_interrupted_audit_reports_what_it_found():
    class StopError(Exception):
        """The user's interruption."""

    def stop(progress):
        if progress.done > 20:
            raise StopError

    examination = Examination("planted_sets:Named", GateOptions(kind="audit", count=6, compared=60), stop)
    with pytest.raises(StopError):
        asyncio.run(examination.run())
    report = examination.report()

    assert (report.verdict, report.codes) == ("failed", ["leak", "interrupted"])
    assert "interrupted" in report.notes[-1]


def test_every_code_is_on_the_page():
    page = (Path(__file__).parents[3] / "docs/how-to/audit.md").read_text()

    assert [code for code in CODES if f"| `{code}` |" not in page] == []
