"""End of a shipper: given up on, asked to stop, or replaced by another."""

import os
import shutil
import subprocess
import sys

import pytest

from agent_layer.infra.processes.locks import is_locked
from agent_layer.recorder import Recorder
from agent_layer.schema.step import Content

from ...waiting import communicate, wait_until

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
