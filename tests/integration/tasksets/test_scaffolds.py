"""What 'agent-layer new' writes runs as it is: its gate passes, and fails where its scorer always says yes."""

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from agent_layer.cli.main import build
from envs.agents import load_target
from envs.tasksets import open_taskset

from ...boxes import require_kind
from ...examining import examine

KINDS = {"env": "Tasks", "taskset": "", "scorer": "Tasks"}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """``write(kind)`` writes a scaffold into a directory of its own; returns its module's name and its set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(kind):
        name = f"my_{kind}"
        done = CliRunner().invoke(build(), ["new", kind, name])
        assert done.exit_code == 0, done.output
        return name, f"{name}:My{kind.capitalize()}{KINDS[kind]}"

    yield write
    for kind in KINDS:
        sys.modules.pop(f"my_{kind}", None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_scaffold_passes_its_gate(write, kind):
    require_kind("namespace", "session")
    _, taskset = write(kind)

    report = examine(taskset, count=2)

    assert report.is_passed, report.failures
    load_target(open_taskset(taskset).agent)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gate_of_a_scaffold_sees_a_scorer_that_says_yes(write, kind, tmp_path):
    require_kind("namespace", "session")
    name, taskset = write(kind)
    module = tmp_path / f"{name}.py"
    module.write_text(re.sub(r"float\(is_right\)|(?<=return )float\(.*\)", "1.0", module.read_text()))

    report = examine(taskset)

    assert {"mutants", "cheats"} <= set(report.codes)


@pytest.mark.long
def test_the_written_test_passes_by_itself(write, tmp_path):
    require_kind("namespace", "session")
    name, _ = write("taskset")

    done = subprocess.run([sys.executable, "-m", "pytest", "-q", f"test_{name}.py"], cwd=tmp_path, check=False)

    assert done.returncode == 0


@pytest.mark.parametrize(
    ("name", "why"),
    [
        *((name, "lower-case") for name in ("My-Tasks", "class", "_", "__main__", "9x", "ä", "../x", "")),
        *((name, "would hide") for name in ("json", "pytest", "none", "task", "script", "value_error", "verdict")),
    ],
)
def test_a_name_that_is_no_new_module_is_refused(tmp_path, monkeypatch, name, why):
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(build(), ["new", "scorer", name])

    assert why in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_kept(write, tmp_path):
    (tmp_path / "test_my_env.py").write_text("mine")

    with pytest.raises(AssertionError):
        write("env")

    assert [file.name for file in tmp_path.iterdir()] == ["test_my_env.py"]
