"""Tasks files of any size: random access, errors that name the line, memory that does not grow with the tasks."""

import json
import os
from pathlib import Path

import pytest

from agent_layer.dispatcher import FILE_SET, identify_file
from agent_layer.dispatcher.tasks import read_tasks
from agent_layer.errors import BadInputError
from envs.tasksets import Report, save_report
from trainer_adapter.config import SourceConfig
from trainer_adapter.tasks.source import TaskSource
from trainer_adapter.tasks.task_file import TaskFile


@pytest.fixture
def write(tmp_path):
    """``write(line, …)``: a file of these lines."""

    def write(*lines, newline="\n"):
        path = tmp_path / "tasks.jsonl"
        path.write_bytes(newline.join([*lines, ""]).encode())
        return path

    return write


def test_every_task_is_found_as_a_whole_reading_finds_it(write):
    path = write(
        "\ufeff" + '{"input": 1}', "", '{"id": "b", "input": "ä\\n", "labels": {"k": "v"}}', "  ", '{"input": 3}'
    )
    file = TaskFile(path, run="r")

    assert [file.read(index) for index in (2, 0, 1)] == [read_tasks(path, run="r")[index] for index in (2, 0, 1)]
    assert len(file) == 3


def test_lines_of_windows_and_a_last_line_without_an_end_are_tasks(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"input": 1}\r\n{"input": 2}')

    assert [task.input for task in map(TaskFile(path, run="r").read, range(2))] == [1, 2]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (['{"input": 1}', "", "{"], r"tasks\.jsonl line 3: expected a JSON object"),
        (['{"input": 1}', '{"inptu": 1}'], "line 2.*inptu"),
        (['{"id": "a", "input": 1}', '{"id": "b", "input": 1}', '{"id": "a", "input": 2}'], "line 3.*'a' of line 1"),
        (['{"input": 1}', '{"input": 1}'], "line 2.* of line 1"),
        ([""], "expected at least one task"),
    ],
)
def test_a_line_that_is_no_task_is_named_before_anything_is_queued(write, lines, named):
    with pytest.raises(BadInputError, match=named):
        TaskFile(write(*lines), run="r")


def test_a_task_out_of_bounds_is_named_when_its_turn_comes(write):
    file = TaskFile(write('{"input": 1}', '{"id": "b", "input": 2, "priority": 5000}'), run="r")

    with pytest.raises(BadInputError, match="line 2: expected priority"):
        file.read(1)


def test_a_file_that_is_changed_under_its_reader_is_an_error_and_one_that_is_only_written_again_is_not(write):
    file = TaskFile(write('{"input": 1}', '{"input": 2}'), run="r")
    path = write('{"input": 1}', '{"input": 2}')
    os.utime(path, ns=(1, 1))
    assert file.read(1).input == 2

    write('{"input": 2}', '{"input": 1}')

    with pytest.raises(BadInputError, match=r"tasks\.jsonl: expected the tasks .* changed since"):
        file.read(1)


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(BadInputError, match="expected a readable file"):
        TaskFile(tmp_path / "none.jsonl", run="r")


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_many_tasks_are_held_in_the_memory_of_their_places(tmp_path):
    path, num = tmp_path / "many.jsonl", 300_000
    line = b'{"id":"t%d","input":"what is %d + %d?","grading":%d,"labels":{"source":"generated"}}\n'
    with path.open("wb") as out:
        out.writelines(line % (at, at, at, 2 * at) for at in range(num))
    before = resident_bytes()

    file = TaskFile(path, run="r")
    read = [file.read(index) for index in (0, 154_321, num - 1)]

    assert [task.grading for task in read] == [0, 2 * 154_321, 2 * (num - 1)]
    # 16 bytes for each of them, and as much again while ids are compared; the tasks' lines alone have 100
    assert resident_bytes() - before < 64 * num


def test_the_first_task_of_each_set_and_scorer_is_found(write):
    rows = [(None, None), (None, "m:f"), ("s", "m:f"), (None, "m:f"), ("s", "m:g"), ("s", "m:f")]
    lines = [
        json.dumps({"id": str(index), "input": 1, "labels": {"taskset": name} if name else {}, "scorer": scorer})
        for index, (name, scorer) in enumerate(rows)
    ]

    assert [task.id for task in TaskFile(write(*lines), run="r").read_first_tasks()] == ["0", "1", "2", "4"]


def test_the_verdict_on_a_file_labels_the_tasks_that_are_drawn_from_it(write, tmp_path):
    path = write('{"id": "a", "input": 1}')
    report = Report(taskset=FILE_SET, version=identify_file(path)[1], verdict="passed", at=0.0)

    def labels():
        source = TaskSource(SourceConfig(path=path), tmp_path / "tasks", run="r", verdicts=tmp_path)
        assert source.file_set == identify_file(path)
        return source.read(0, 0).labels

    assert labels() == {}
    save_report(tmp_path, report)
    assert labels() == {"audit": "passed"}
