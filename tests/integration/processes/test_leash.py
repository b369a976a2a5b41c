"""A leashed process never outlives its parent."""

import ctypes
import signal
import subprocess
import sys
from pathlib import Path

from agent_layer.infra.processes.supervised import start_supervised

from ...processes import is_running
from ...waiting import wait_for_exit, wait_until

PARENT = """
import sys, time
from pathlib import Path
from agent_layer.infra.processes.supervised import start_supervised
start_supervised([sys.executable, "-c", CHILD], {}, Path(sys.argv[1]))
time.sleep(600)
"""
CHILD = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def pid_in(log):
    return int(log.read_text() or 0) if log.exists() else 0


def test_it_ends_when_its_parent_is_killed(tmp_path):
    log = tmp_path / "child.log"
    parent = subprocess.Popen([sys.executable, "-c", f"CHILD = {CHILD!r}\n{PARENT}", str(log)])
    child = wait_until(lambda: pid_in(log))

    parent.send_signal(signal.SIGKILL)
    wait_for_exit(parent)

    wait_until(lambda: not is_running(child))


def test_it_ends_when_it_is_stopped(tmp_path):
    leashed = start_supervised([sys.executable, "-c", CHILD], {}, tmp_path / "child.log")
    child = wait_until(lambda: pid_in(leashed.log))

    leashed.stop()

    assert not is_running(child)
    assert not leashed.is_running


def test_it_ends_when_the_leash_is_asked_by_a_signal_that_does_not_interrupt_its_wait(tmp_path):
    """As one that comes just before the wait: here another thread of the leash takes it."""
    leashed = start_supervised([sys.executable, "-c", CHILD], {}, tmp_path / "child.log")
    wait_until(lambda: pid_in(leashed.log))
    leash = leashed.process.pid
    tasks = Path(f"/proc/{leash}/task")
    threads = wait_until(lambda: {int(thread.name) for thread in tasks.iterdir()} - {leash})

    assert ctypes.CDLL(None).tgkill(leash, min(threads), signal.SIGTERM) == 0

    wait_until(lambda: not leashed.is_running)
    leashed.stop()


def test_it_ends_when_the_leash_itself_is_killed(tmp_path):
    leashed = start_supervised([sys.executable, "-c", CHILD], {}, tmp_path / "child.log")
    child = wait_until(lambda: pid_in(leashed.log))

    leashed.process.kill()
    wait_for_exit(leashed.process)

    wait_until(lambda: not is_running(child))
    leashed.stop()
