"""What a keeper knows of its worker."""

import os
import subprocess

from envs.sandbox.guest.keeper import is_ending


def test_a_worker_that_ends_is_told_from_one_that_runs_before_its_children_are_freed():
    with subprocess.Popen(["sleep", "600"]) as worker:
        assert not is_ending(worker.pid)

        worker.kill()
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        assert is_ending(worker.pid), "a zombie"
    assert is_ending(worker.pid), "nothing of it is left"
