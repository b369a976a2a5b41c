"""A mark in the environment finds descendants whose ancestors are dead, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from agent_layer.infra.processes.marked import kill_marked, list_marked

from ...waiting import wait_until

MARK = "TEST_OF_MARKED_PROCESSES"
DAEMON = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)"
TITLED = "import setproctitle, time; setproctitle.setproctitle('VLLM::EngineCore' + 'x' * 500); time.sleep(600)"


@pytest.fixture
def mark(monkeypatch, tmp_path):
    """The mark of this test, which processes started in it carry."""
    monkeypatch.setenv(MARK, str(tmp_path))
    monkeypatch.setenv("SPT_NOENV", "1")
    yield str(tmp_path)
    kill_marked(MARK, str(tmp_path))


def test_a_daemon_whose_parent_ended_is_killed(mark):
    subprocess.run([sys.executable, "-c", DAEMON], check=True)
    (daemon,) = list_marked(MARK, mark)

    assert kill_marked(MARK, mark) == [daemon]
    assert list_marked(MARK, mark) == []


def test_a_process_that_shows_a_title_keeps_its_mark(mark):
    with subprocess.Popen([sys.executable, "-c", TITLED]) as titled:
        wait_until(lambda: Path(f"/proc/{titled.pid}/cmdline").read_bytes().startswith(b"VLLM::"))
        assert kill_marked(MARK, mark) == [titled.pid]


def test_processes_of_another_run_are_left_alone(mark, monkeypatch):
    monkeypatch.setenv(MARK, f"{mark}-other")
    with subprocess.Popen(["sleep", "600"]) as other:
        monkeypatch.setenv(MARK, mark)
        assert kill_marked(MARK, mark) == []
        assert other.poll() is None
        other.kill()
