"""A leashed process never outlives its parent."""

import ctypes
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent_layer.infra.processes.supervised import MAX_LOG_BYTES, bound_log, start_supervised

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


IGNORES = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {CHILD}"
STARTS_ORPHAN = PARENT.replace("Path(sys.argv[1])", "Path(sys.argv[1]), orphan_seconds=0.2")


def test_one_that_ignores_its_end_is_killed_sooner_when_its_starter_was_killed(tmp_path):
    log = tmp_path / "child.log"
    parent = subprocess.Popen([sys.executable, "-c", f"CHILD = {IGNORES!r}\n{STARTS_ORPHAN}", str(log)])
    child = wait_until(lambda: pid_in(log))

    parent.send_signal(signal.SIGKILL)
    wait_for_exit(parent)

    wait_until(lambda: not is_running(child), seconds=5)  # its grace is 10 s


PRINTS = """
import os, sys, time
for number in range(6 << 10):
    os.write(1 + number % 2, b"x" * 16384)
while True:
    print("printed all", flush=True)
    time.sleep(0.05)
"""


def test_the_log_of_one_that_prints_without_end_stays_small_and_keeps_its_beginning_and_end(tmp_path):
    leashed = start_supervised(
        [sys.executable, "-c", f"print('ready', flush=True)\n{PRINTS}"], {}, tmp_path / "child.log"
    )
    older = tmp_path / "child.log.1"
    wait_until(lambda: "printed all" in leashed.log_tail)
    wait_until(lambda: leashed.log.stat().st_size <= MAX_LOG_BYTES)
    assert 0 < older.stat().st_size <= 4 * MAX_LOG_BYTES
    assert older.stat().st_mode & 0o777 == 0o600
    leashed.stop()
    with leashed.log.open() as log:
        assert log.readline() == "ready\n"  # its starter may look once all is printed


@pytest.mark.long
def test_the_last_words_of_one_that_ends_are_kept_whatever_it_printed_before(tmp_path):
    program = PRINTS.replace("6 << 10", "2 << 10").partition("while True")[0] + "\nsys.stderr.write('last words')"
    leashed = start_supervised([sys.executable, "-c", program], {}, tmp_path / "child.log")
    wait_for_exit(leashed.process)
    leashed.stop()

    older = tmp_path / "child.log.1"
    assert any(path.exists() and path.read_bytes().endswith(b"last words") for path in (leashed.log, older))


@pytest.mark.parametrize("size", [0, 1, 99_999, 100_000, 100_001, 250_000, 3_000_000])
def test_a_log_beyond_its_bound_continues_behind_its_beginning(tmp_path, size):
    path, content = tmp_path / "log", bytes(number % 251 for number in range(size))
    path.write_bytes(content)
    with path.open("ab", buffering=0) as log:
        bound_log(log.fileno(), 100_000)
        log.write(b"more")

    is_beyond = size > 100_000
    found = path.read_bytes()
    assert found.endswith(b"more")
    assert found.startswith(content[: 1 << 16] + b"\n[" if is_beyond else content)
    assert len(found) < (70_000 if is_beyond else size + 5)
    assert not is_beyond or (tmp_path / "log.1").read_bytes() == content[-100_000:]
