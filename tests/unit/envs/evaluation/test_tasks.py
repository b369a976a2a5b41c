"""Where tasks come from, and how a round submits them."""

from pathlib import Path

import msgspec
import pytest

from agent_layer.errors import BadInputError
from agent_layer.schema import Task, hash_input
from envs.evaluation.rounds import TaskSource
from envs.evaluation.tasks import hash_tasks, load_tasks, prepare_task, reference_task


def write(path: Path, *tasks):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(task) + b"\n" for task in tasks))


def load(path, **options):
    return load_tasks(TaskSource(name=str(path), **options), "eval.r")


def test_tasks_of_a_file_become_tasks_of_split_eval(tmp_path):
    write(tmp_path / "a.jsonl", *({"id": f"t{number}", "input": number, "agent": "m:a"} for number in range(5)))

    loaded = load(tmp_path / "a.jsonl", limit=3)

    assert [(task.id, task.split, task.run) for task in loaded.tasks] == [(f"t{n}", "eval", "eval.r") for n in range(3)]
    assert loaded.agent == "m:a"


def test_a_folder_is_read_file_by_file(tmp_path):
    write(tmp_path / "b.jsonl", {"id": "t2", "input": 2})
    write(tmp_path / "a" / "x.jsonl", {"id": "t1", "input": 1, "agent": "m:a"})

    loaded = load(tmp_path)

    assert [task.id for task in loaded.tasks] == ["t1", "t2"]
    assert loaded.agent is None


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "found none"),
        ({"one/task.toml": b""}, "instruction.md: expected a readable text"),
        ({"a.jsonl": b'{"id": "t", "input": 1}\n', "b.jsonl": b'{"id": "t", "input": 2}\n'}, "the id 't' of"),
        ({"a.jsonl": b'{"input": 1}\n{"inptu": 1}\n'}, "line 2"),
    ],
)
def test_a_folder_that_cannot_be_used_says_why(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)

    with pytest.raises(BadInputError, match=message):
        load(tmp_path)


def test_a_name_that_is_neither_file_nor_task_set_is_refused():
    for name in ("missing.jsonl", "no-such-set"):
        with pytest.raises(BadInputError, match=name):
            load(name)


def test_the_callers_agent_plays_whatever_agent_a_task_names():
    task = Task(id="t", run="r", agent="theirs", env="game", launch=9, group_size=4, sampling={"top_p": 0.5})

    ours = prepare_task(task, group_size=2, agent="mine", sampling={"temperature": 0.0})
    game = prepare_task(task, group_size=2, agent="game", sampling={})

    assert (ours.agent, ours.env, ours.launch, ours.group_size) == (None, None, None, 2)
    assert ours.sampling == {"top_p": 0.5, "temperature": 0.0}
    assert game.env == "game"
    assert reference_task(task).input_hash == hash_input(task)


def test_the_hash_of_tasks_covers_gradings_and_not_their_order():
    tasks = [Task(id=name, run="r", input=name, grading=1) for name in ("a", "b")]

    assert hash_tasks(tasks) == hash_tasks(tasks[::-1])
    assert hash_tasks(tasks) != hash_tasks([tasks[0], msgspec.structs.replace(tasks[1], grading=2)])
