"""End of a shipper: given up on, asked to stop, or replaced by another."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent_layer.infra.processes.locks import is_locked
from agent_layer.recorder import Recorder
from agent_layer.schema.step import Content

from ...waiting import communicate, run, wait_until

TRAJECTORY = "r.0-0"


def content(text: str) -> Content:
    return Content(trajectory_id=TRAJECTORY, hash=text, body=b"1")


def start_shipper(settings) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "agent_layer.shipper"],
        env=os.environ | settings.environment(),
        stderr=subprocess.PIPE,
    )


def test_a_shipper_that_nobody_waits_for_gives_up_with_a_sentence_and_leaves_the_logs(settings):
    away = settings.model_copy(update={"redis_url": "redis://127.0.0.1:1", "retry_seconds": 0.3, "connect_seconds": 1})
    recorder = Recorder(away)
    name = recorder.append(content("a"))
    recorder.close()

    shipper = start_shipper(away)
    output = communicate(shipper)[1].decode()

    assert shipper.returncode == 1
    assert "shipping given up" in output
    assert "Traceback" not in output
    assert (settings.log_dir / f"{name}.log").exists()


def test_a_shipper_that_is_asked_to_end_ends_though_writers_live(settings, wait_until):
    recorder = Recorder(settings)
    recorder.append(content("a"))
    shipper = start_shipper(settings)
    wait_until(lambda: recorder.mark() == [])

    shipper.terminate()
    communicate(shipper)

    assert shipper.returncode == 0
    assert not is_locked(settings.log_dir / "shipper.lock")
    recorder.close()


def test_a_second_shipper_for_a_directory_ends_at_once(settings, wait_until):
    recorder = Recorder(settings)
    recorder.append(content("a"))
    first = start_shipper(settings)
    wait_until(lambda: recorder.mark() == [])

    second = start_shipper(settings)

    assert b"another shipper is at work" in communicate(second)[1]
    assert (second.returncode, first.poll()) == (0, None)
    recorder.close()
    communicate(first)
    assert first.returncode == 0


@pytest.mark.parametrize("removed", [".", ".."], ids=["logs", "all"])
def test_a_shipper_whose_directory_was_removed_ends_and_makes_nothing_again(settings, removed):
    """Else it would start the embedded Redis of that directory for ever, each time in vain."""
    recorder = Recorder(settings.model_copy(update={"ship_linger_seconds": 600.0}))
    recorder.append(content("a"))
    with start_shipper(settings.model_copy(update={"ship_linger_seconds": 600.0})) as shipper:
        try:
            wait_until(lambda: is_locked(settings.log_dir / "shipper.lock"))
            directory = (settings.log_dir / removed).resolve()
            while directory.exists():
                shutil.rmtree(directory, ignore_errors=True)

            assert communicate(shipper)[1].decode().count("its directory was removed") == 1
        finally:
            shipper.kill()

    assert not directory.exists()


DEAF = """
import os, signal, sys, time
from agent_layer.shipper import __main__ as shipper
shipper._STOP_SECONDS = float(sys.argv[1])
stop = shipper._ended_by_signal()
with stop._cond:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.1)
stop.wait()
print("stops", flush=True)
time.sleep(600)
"""


def test_a_signal_that_comes_while_the_main_thread_looks_at_its_event_ends_the_shipper():
    done = run([sys.executable, "-c", DEAF, "0.1"], 60)

    assert (done.returncode, done.stdout) == (0, "stops\n")


@pytest.mark.parametrize("how", ["block", "ignore"])
def test_what_a_starter_does_with_signals_makes_no_detached_process_deaf(tmp_path, how):
    """A shipper and the embedded Redis outlive a starter that a test runner or a sandbox made deaf to SIGTERM."""
    deaf = {
        "block": "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])",
        "ignore": "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    }[how]
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from agent_layer.infra import start_detached\n"
        f"{deaf}\n"
        "print(start_detached(['-c', 'import time; time.sleep(600)'], os.environ, Path(sys.argv[1]), None).pid)"
    )
    pid = int(run([sys.executable, "-c", program, tmp_path / "log"], 60).stdout)
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        masks = [line.split()[1] for line in status.splitlines() if line.startswith(("SigBlk", "SigIgn"))]
        assert [int(mask, 16) & 1 << (signal.SIGTERM - 1) for mask in masks] == [0, 0]
    finally:
        os.kill(pid, signal.SIGKILL)
