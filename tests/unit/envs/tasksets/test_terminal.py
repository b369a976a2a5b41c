"""Chores at a terminal: results in any spelling are right, those with a mistake are not; Harbor's form."""

import json
import random
import subprocess
import sys
import tomllib

import pytest
from hypothesis import given, strategies as st

from agent_layer.errors import BadInputError
from envs.tasksets import open_taskset
from envs.tasksets.cli import write
from envs.tasksets.terminal.chores import KINDS
from envs.tasksets.terminal.compare import is_right
from envs.tasksets.terminal.problems import find_problem

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


def _draw(level, count):
    split, seed = random.choice(["train", "eval"]), random.randrange(10**6)
    return list(open_taskset("terminal").tasks(split=split, seed=seed, level=level, count=count))


def _solves(task, script):
    """Whether the files of a script are the results; what a scorer says of them in a box is another test's."""
    results = find_problem(task.id).chore.results
    found = {path: script.files.get(path) for path in results}
    return all(text is not None and is_right(results[path], text.encode()) for path, text in found.items())


@pytest.mark.parametrize("level", range(4))
def test_right_results_in_any_spelling_are_right_and_all_others_are_not(level):
    taskset = open_taskset("terminal")
    for task in _draw(level, 10):
        rewrites, cheats = taskset.rewrites(task), taskset.cheats(task)

        assert [one.name for one in [taskset.solve(task), *rewrites] if not _solves(task, one)] == []
        assert [one.name for one in [*taskset.mutants(task), *cheats] if _solves(task, one)] == []
        assert len(rewrites) >= 20
        assert len({one.name for one in cheats}) == len(cheats) >= 20


def test_each_five_tasks_have_the_five_kinds_of_their_level():
    kinds = {task.labels["kind"] for level in range(4) for task in _draw(level, 5)}

    assert kinds == {name for level in KINDS for name, _ in level}
    assert len(kinds) == 20


def test_what_an_agent_reads_has_no_result():
    for level in range(4):
        for task in _draw(level, 5):
            texts = [one for one in find_problem(task.id).chore.results.values() if isinstance(one, str)]
            assert not any(text.strip() in task.input for text in texts if text.strip())


@given(JSON, st.sampled_from([None, 0, 4]), st.booleans(), st.booleans())
def test_json_is_right_in_any_spelling(value, indent, ascii_only, ordered):
    written = json.dumps(value, indent=indent, ensure_ascii=ascii_only, sort_keys=ordered).encode()

    assert is_right(
        value if not isinstance(value, str) else [value], written if not isinstance(value, str) else b""
    ) == (not isinstance(value, str))


@given(JSON.filter(lambda one: not isinstance(one, str)), JSON)
def test_other_json_is_wrong(expected, other):
    same = json.dumps(expected, sort_keys=True) == json.dumps(other, sort_keys=True)

    assert is_right(expected, json.dumps(other).encode()) == same


@pytest.mark.parametrize(
    "found", [b"", b"\xff", b"{", b"NaN", b"[" * 10**5, b"9" * 10**5, b'{"a": 1e999}', b'{"a": true}']
)
def test_what_is_no_json_or_another_kind_of_value_is_wrong(found):
    assert not is_right({"a": 1}, found)


def test_one_and_one_point_zero_are_one_number():
    assert is_right({"a": 1}, b'{"a": 1.0}')
    assert not is_right({"a": 1}, b'{"a": "1"}')


def test_a_task_is_a_directory_in_harbors_form_and_its_verifier_reads_results_as_data(tmp_path):
    (task,) = _draw(random.randrange(4), 1)
    problem, folder, work = find_problem(task.id), tmp_path / "task", tmp_path / "work"
    open_taskset("terminal").write_directory(task, folder)

    config = tomllib.loads((folder / "task.toml").read_text())
    assert (config["schema_version"], config["verifier"]["environment_mode"]) == ("1.4", "separate")
    assert config["environment"]["network_mode"] == config["verifier"]["environment"]["network_mode"] == "no-network"
    assert config["artifacts"] == [f"/work/{path}" for path in problem.chore.results]
    assert problem.chore.instruction in (folder / "instruction.md").read_text()
    assert {path for path in folder.rglob("*.sh") if path.stat().st_mode & 0o111} == set(folder.rglob("*.sh"))
    assert not list((folder / "environment").rglob("expected.json"))

    def verify():
        command = [sys.executable, "-I", folder / "tests/compare.py", folder / "tests/expected.json", work]
        return subprocess.run(command, check=False).returncode

    work.mkdir()
    assert verify() == 1
    for path, text in problem.texts.items():
        (work / path).write_text(text)
    assert verify() == 0
    path = next(iter(problem.texts))
    (work / path).rename(work / "elsewhere")
    (work / path).symlink_to(work / "elsewhere")
    assert verify() == 1


def test_directories_are_written_by_a_command_for_sets_that_have_them(tmp_path):
    write("terminal", tmp_path / "chores", level=2, count=5, directories=True)

    assert sorted(one.name for one in (tmp_path / "chores").iterdir()) == [f"terminal-2-train-0-{n}" for n in range(5)]
    with pytest.raises(BadInputError, match="leave --directories out"):
        write("repair", tmp_path / "repositories", count=1, directories=True)
