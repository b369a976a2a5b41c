"""A graph whose process is killed resumes after its last superstep in another process."""

import os
import signal
import sys
from pathlib import Path

from ...unit.envs.counting_graph import NUM_ROUNDS
from ...waiting import run

PROGRAM = Path(__file__).parents[2] / "unit" / "envs" / "counting_graph.py"


def test_one_whose_process_is_killed_goes_on_after_its_last_superstep_in_another(tmp_path):
    state, journal = tmp_path / "state", tmp_path / "journal"

    killed = [run_program(state, journal, at) for at in (0, 3)]
    again = run_program(state, journal)

    assert [one.returncode for one in killed] == [-signal.SIGKILL] * 2
    numbers = list(range(NUM_ROUNDS))
    assert again.stdout == f"{numbers} {['go', *map(str, numbers)]}\n", again.stderr
    counted = [line for line in journal.read_text().splitlines() if line.startswith("count")]
    assert counted == [f"count {number}" for number in sorted([*numbers, 0, 3])]


def run_program(*arguments):
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return run(command, env=os.environ | path)
