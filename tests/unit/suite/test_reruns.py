"""What is red at once, what runs again, and the last lines; pytest runs ``planted.py``, in which each kind stands."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ...reruns import FAILURES
from ...waiting import run

PLANTED = "tests/unit/suite/planted.py"
ROOT = Path(__file__).parents[3]
FLAKY = {"test_slow_once", "test_slow_once_in_a_loop", "test_server_starts_slowly_once"}
RED = {
    "test_chromium_that_is_required_is_missing",
    "test_stuck_for_ever",
    "test_left_out_when_it_runs_again",
    "test_killed_and_slow_once",
    "test_property_that_waits",
    "test_wrong_once",
    "test_wrong_and_slow_once",
    "test_lost_update",
    "test_listener_that_closes_late",
    "test_task_that_nothing_awaits",
    "test_exception_that_nothing_retrieves",
}


@pytest.fixture
def planted(tmp_path):
    """``planted(names, options)``: run these, or all; the process and its tally."""

    def run_planted(names=(), options=()):
        tally = tmp_path / "tally"
        variables = {"PLANTED_PLACE": str(tmp_path), "TEST_TALLY": str(tally), "AGENT_LAYER_REQUIRE": "chromium"}
        chosen = [f"{PLANTED}::{name}" for name in names] or [PLANTED]
        command = [sys.executable, "-m", "pytest", *chosen, "-p", "no:cacheprovider", "--randomly-seed=7", *options]
        done = run(command, 300, cwd=ROOT, env=os.environ | variables, stdin=subprocess.DEVNULL)
        return done, msgspec.json.decode(tally.read_bytes())

    return run_planted


@pytest.mark.long
def test_only_waits_run_again_and_all_else_is_red_at_once(planted):
    done, tally = planted(options=["-n", "2"])

    assert {name.rpartition(":")[2] for name in tally["flaky"]} == FLAKY, done.stdout
    assert {name.rpartition(":")[2] for name in tally["reds"]} == RED, done.stdout
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[-1] == f"{len(FLAKY) + 1} passed, {len(RED)} failed, 1 skipped"
    assert set(lines[-1 - len(FLAKY) : -1]) == {f"flaky: {PLANTED}::{name}" for name in FLAKY}
    assert "the log of a slow machine" in done.stdout
    kept = next(FAILURES.glob("*planted*test_lost_update-call.txt")).read_text()
    assert "--randomly-seed=7" in kept
    assert "assert" in kept


def test_a_run_whose_only_failures_were_waits_is_green(planted):
    done, tally = planted(["test_slow_once", "test_passes"])

    assert done.returncode == 0, done.stdout
    assert (tally["passed"], tally["failed"]) == (2, 0)
    assert done.stdout.splitlines()[-2:] == [f"flaky: {PLANTED}::test_slow_once", "2 passed, 0 failed, 0 skipped"]
