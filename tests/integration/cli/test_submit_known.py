"""'submit --known' distinguishes tasks that a run's split has tried from new ones."""

import pytest

from agent_layer.cli.main import build
from agent_layer.dispatcher import connect
from agent_layer.errors import BadInputError
from agent_layer.schema.task import Task, hash_input
from agent_layer.schema.wire.gateway_api import OpenRequest, make_attempt_started
from agent_layer.store import open_store

from ...stored import write_segment


@pytest.fixture
def tried(settings):
    """A store in which the train split of run r has tried input 1, and its eval split input 2."""
    for number, split in ((1, "train"), (2, "eval")):
        task = Task(id=f"old{number}", run="r", input=number, split=split)
        request = OpenRequest(task_id=task.id, split=split, env="maze", env_version="3")
        started = make_attempt_started(request, rollout_id=f"o{number}.0", run="r", at=1.0, task=task)
        write_segment(open_store(settings), started)


@pytest.fixture
def submit(settings, tmp_path, monkeypatch, capsys):
    """``submit("--known", "skip", run="r")``: queues the inputs 1 to 3; returns what it prints."""
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    lines = ['{"id": "new1", "input": 1}', "", '{"id": "new2", "input": 2}', '{"id": "new3", "input": 3}']
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines))

    def run(*arguments, run="r"):
        build()(["submit", str(tmp_path / "tasks.jsonl"), "--run", run, *arguments], standalone_mode=False)
        return capsys.readouterr().out

    return run


def queued(settings):
    return sorted(group.task_id for group in connect(settings).groups())


@pytest.mark.usefixtures("tried")
def test_known_tasks_are_left_out_and_counted(settings, submit):
    assert submit("--known", "skip") == "submitted 2 tasks, 2 rollouts, to run r; 1 known task left out\n"

    assert queued(settings) == ["new2", "new3"]


@pytest.mark.usefixtures("tried")
def test_a_known_task_is_refused_with_its_line_and_nothing_is_queued(settings, submit):
    with pytest.raises(BadInputError, match=r"tasks\.jsonl line 3: .*the store has one with the same input"):
        submit("--known", "refuse", "--split", "eval")

    assert queued(settings) == []


@pytest.mark.usefixtures("tried")
def test_by_default_and_in_another_run_every_task_is_new(settings, submit):
    assert submit("--known", "refuse", run="s") == "submitted 3 tasks, 3 rollouts, to run s\n"
    assert submit() == "submitted 3 tasks, 3 rollouts, to run r\n"

    assert queued(settings) == sorted(["new1", "new2", "new3"] * 2)


@pytest.mark.usefixtures("tried")
def test_a_file_without_anything_new_queues_nothing(settings, submit, tmp_path):
    (tmp_path / "tasks.jsonl").write_text('{"id": "again", "input": 1}\n')

    assert submit("--known", "skip") == "submitted 0 tasks, 0 rollouts, to run r; 1 known task left out\n"
    assert queued(settings) == []


@pytest.mark.usefixtures("tried")
def test_rows_are_found_by_input_and_environment(settings):
    store = open_store(settings)
    request = hash_input(Task(id="any", run="any", input=1))

    assert [row.task_id for row in store.query(input_hash=request).items] == ["old1"]
    assert store.count(env="maze", env_version="3") == 2
    assert store.count(env="maze", env_version="4") == 0
