"""The program that runs hidden tests: with pytest and without, the same results."""

import json
import sys
from pathlib import Path

import pytest

import envs.grading

from ...waiting import run

PROGRAM = (Path(envs.grading.__file__).parent / "guest" / "run_tests.py").read_text()
TESTS = """
def test_passes():
    from mine import double
    print("working")
    assert double(2) == 4

def test_fails():
    from mine import double
    assert double(2) == 5

def test_breaks():
    from mine import missing
    assert missing() == 1

def test_leaves():
    raise SystemExit(0)
"""


@pytest.mark.parametrize("options", [[], ["-S"]], ids=["pytest", "without pytest"])
def test_each_test_has_its_own_result(tmp_path, options):
    (tmp_path / "mine.py").write_text("def double(x): return 2 * x\n")
    (tmp_path / "conftest.py").write_text("raise RuntimeError('the judged folder has no say')\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "test_x.py").write_text(TESTS)

    command = [sys.executable, "-I", *options, "-c", PROGRAM, "hidden/test_x.py"]
    ended = run(command, cwd=tmp_path, env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "results": [
            ["test_passes", "passed"],
            ["test_fails", "failed"],
            ["test_breaks", "error"],
            ["test_leaves", "error"],
        ]
    }
