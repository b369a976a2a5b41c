"""``tasksets audit``, and ``submit`` of what it judged: a failed file is refused, its label travels."""

import json

import pytest

from agent_layer.cli.main import build
from agent_layer.dispatcher import connect
from agent_layer.errors import AgentFailedError, BadInputError

SCORER = """
def score(task, trajectory, result):
    return float(str(result) == str(task.grading))
"""


@pytest.fixture
def run(settings, tmp_path, monkeypatch, capsys, write_module):
    """``run("submit", …)``: runs a command in this process; returns what it prints."""
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(write_module("audited_scorer", SCORER).parent))
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        build()(list(arguments), standalone_mode=False)
        return capsys.readouterr().out

    return call


def write(path, pairs):
    lines = [
        {"id": f"t{at}", "input": f"Question {question}?", "grading": right, "scorer": "audited_scorer:score"}
        for at, (question, right) in enumerate(pairs)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def labels(settings):
    with connect(settings) as dispatcher:
        tasks = [dispatcher.inspector.task(group.group_id) for group in dispatcher.groups()]
    return {(task.run, task.id): task.labels.get("audit") for task in tasks}


def test_a_failed_file_is_refused_until_its_tasks_are_left_out(run, settings, tmp_path, capsys):
    questions = [(number * 7919 % 1000, f"answer {number * 31}") for number in range(1, 9)]
    path = write(tmp_path / "mine.jsonl", [*questions, questions[0]])

    with pytest.raises(AgentFailedError, match="failed its audit, duplicates;"):
        run("tasksets", "audit", path, "--json", "--leave-out", "bad.jsonl")
    report = json.loads(capsys.readouterr().out)
    assert (report["verdict"], report["codes"], report["leave_out"]) == ("failed", ["duplicates"], ["t8"])
    with pytest.raises(
        BadInputError, match=r"expected a set that passed, but it failed on .*: duplicates; .*--unchecked"
    ):
        run("submit", path, "--run", "r")
    assert connect(settings).groups() == []

    assert run("submit", path, "--run", "r", "--leave-out", "bad.jsonl").startswith("submitted 8 tasks, 8 rollouts")
    assert labels(settings) == {("r", f"t{number}"): "mended" for number in range(8)}


def test_verdicts_become_labels(run, settings, tmp_path):
    path = write(tmp_path / "mine.jsonl", [(number * 7919 % 1000, f"answer {number * 31}") for number in range(1, 9)])

    assert run("submit", path, "--run", "before")
    assert set(labels(settings).values()) == {None}
    run("tasksets", "audit", path, "--report", "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "passed"
    assert run("submit", path, "--run", "after")
    assert {label for (name, _), label in labels(settings).items() if name == "after"} == {"passed"}


def test_a_file_that_no_audit_saw_is_submitted_and_one_that_failed_only_unchecked(run, settings, tmp_path):
    path = write(tmp_path / "twice.jsonl", [(1, "a"), (2, "b"), (1, "a")])
    run("submit", path, "--run", "r")
    with pytest.raises(AgentFailedError):
        run("tasksets", "audit", path)

    run("submit", path, "--run", "s", "--unchecked")

    assert {label for (name, _), label in labels(settings).items() if name == "s"} == {"failed"}
