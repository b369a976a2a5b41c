"""``agent-layer view --demo`` as a user types it: it starts, answers, shows its run in Chromium, and leaves nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agent_layer.view.demo.recording import RECORDING

from ..record_demo import MAX_BYTES
from ..waiting import read_line, wait_for_exit
from .tabs import open_tab


def test_the_recording_is_small():
    assert RECORDING.stat().st_size <= MAX_BYTES


@pytest.fixture
def demo():
    """The command in a directory of its own, and the address that it prints."""
    command = [sys.executable, "-m", "agent_layer.cli", "view", "--demo", "--port", "0"]
    with TemporaryDirectory(prefix="al-demo-") as name:  # a socket's path has to be short
        temporary = Path(name)
        (temporary / "work").mkdir()
        environment = os.environ | {"TMPDIR": name, "AGENT_LAYER_REDIS_URL": "redis://127.0.0.1:1"}
        process = subprocess.Popen(command, cwd=temporary / "work", env=environment, stdout=subprocess.PIPE, text=True)
        try:
            answer = read_line(process)
            found = re.fullmatch(r"view: (http://127\.0\.0\.1:\d+/)(#/run/\S+)\n", answer)
            assert found, answer
            yield found.groups()
            process.terminate()
            assert wait_for_exit(process) == 0
        finally:
            process.kill()
            process.stdout.close()
            process.wait()
        assert [path.name for path in temporary.rglob("*")] == ["work"]


def test_a_recorded_run_is_shown_and_nothing_is_left(demo, chromium):
    address, view = demo
    with open_tab(chromium, address) as tab:
        run = tab.ask(f"runs/{view.rpartition('/')[2]}")
        engines = [one["value"] for one in tab.ask("facets?fields=engine")["facets"]["engine"]]
        tab.open(view)
        tab.page.wait_for_selector("[data-health]")
        text = tab.page.inner_text("main")

    assert engines == [f"http://127.0.0.1:{engines[0].rpartition(':')[2]}"]
    assert re.search(rf"Trajectories\s+{run['counts']['trajectories']:,}\s", text)
    assert f"Update {run['steps']['step'][-1]}" in text
    assert run["steps"]["numbers"]["success"][-1] > run["steps"]["numbers"]["success"][0]
    assert tab.errors == []
