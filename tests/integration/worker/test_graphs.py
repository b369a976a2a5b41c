"""A graph whose process is killed resumes after its last superstep in another process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ...unit.envs.counting_graph import NUM_ROUNDS

PROGRAM = Path(__file__).parents[2] / "unit" / "envs" / "counting_graph.py"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("killed_at", [0, 1, 3])
def test_one_whose_process_is_killed_goes_on_after_its_last_superstep_in_another(tmp_path, killed_at):
    state, journal = tmp_path / "state", tmp_path / "journal"

    killed = run_program(state, journal, killed_at)
    again = run_program(state, journal)

    assert killed.returncode == -signal.SIGKILL
    numbers = list(range(NUM_ROUNDS))
    assert again.stdout == f"{numbers} {['go', *map(str, numbers)]}\n", again.stderr
    counted = [line for line in journal.read_text().splitlines() if line.startswith("count")]
    assert counted == [f"count {number}" for number in sorted([*numbers, killed_at])]


def run_program(*arguments):
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.run(command, env=os.environ | path, capture_output=True, text=True, check=False, timeout=120)
