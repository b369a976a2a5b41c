"""What attempts leave behind ends with them, or with their worker: daemons, directories, the processes themselves."""

import signal
from pathlib import Path

import pytest

from agent_layer.schema.task import Limits, Task

from ...processes import is_running, list_family
from ...waiting import scaled, wait_for_exit

AGENT = """
import asyncio
import os, pathlib, signal, subprocess, sys, tempfile, time

HERE = pathlib.Path(__file__).parent

def daemonise(name, *, clears_environment):
    "Two forks and a session of its own: no parent, no group, no environment tells where it came from."
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            note(name)
            program = [sys.executable, "-c", "import time; time.sleep(600)"]
            os.execve(program[0], program, {} if clears_environment else dict(os.environ))
        os._exit(0)
    os.wait()

def note(name):
    part = HERE / f"{name}.part"
    part.write_text(str(os.getpid()))
    part.rename(HERE / f"{name}.pid")

async def leaves(task, rollout):
    note(f"{task.id}.agent")
    daemonise(f"{task.id}.plain", clears_environment=False)
    daemonise(f"{task.id}.bare", clears_environment=True)
    if os.fork() == 0:
        note(f"{task.id}.forked")
        time.sleep(600)
        os._exit(0)
    pathlib.Path(tempfile.mkdtemp(), "big").write_text("x")
    (HERE / f"{task.id}.directory").write_text(os.environ.get("TMPDIR", ""))
    while not all((HERE / f"{task.id}.{name}.pid").exists() for name in ("plain", "bare", "forked")):
        await asyncio.sleep(0.01)
    (HERE / f"{task.id}.ready").touch()
    if task.id == "stays":
        await asyncio.sleep(600)
    if task.id == "crashes" and rollout.attempt == 0:
        os._exit(3)
    return 1.0

async def stuck(task, rollout):
    note(f"{task.id}.agent")
    (HERE / f"{task.id}.ready").touch()
    time.sleep(600)
"""


@pytest.fixture
def stack(shared_stack):
    return shared_stack


@pytest.fixture(autouse=True)
def _agent(write_module):
    write_module("agent", AGENT)


@pytest.fixture
def submit(dispatcher, tmp_path):
    """``submit("ends")``: queue a task; each test has a run of its own, because all share a queue."""

    def submit_one(name, **fields):
        return dispatcher.submit([Task(id=name, run=tmp_path.name, **fields)])

    return submit_one


def noted(directory, name="*"):
    """Processes of the task with this name that are, or were, there."""
    return [int(path.read_text()) for path in directory.glob(f"{name}.*.pid")]


def running(directory, name="*"):
    return [pid for pid in noted(directory, name) if is_running(pid)]


def test_what_attempts_left_is_gone_when_they_count_and_when_they_are_cancelled(
    dispatcher, submit, start_worker, worker_output, tmp_path, wait_until
):
    start_worker("agent:leaves", "--isolate", "--slots", "3")
    cancelled = submit("stays")

    groups = dispatcher.wait(submit("ends") + submit("crashes"), timeout=scaled(60))
    left = [pid for name in ("ends", "crashes") for pid in running(tmp_path, name)]
    wait_until((tmp_path / "stays.ready").exists, log=worker_output)
    dispatcher.cancel(cancelled)

    assert [group.num_accepted for group in groups] == [1, 1]
    assert [len(noted(tmp_path, name)) for name in ("ends", "crashes", "stays")] == [4, 4, 4]
    assert left == []
    assert not any(Path((tmp_path / f"{name}.directory").read_text()).exists() for name in ("ends", "crashes"))
    wait_until(lambda: not running(tmp_path, "stays"), log=worker_output)


BOTH = [pytest.param([], id="shared"), pytest.param(["--isolate"], id="isolated", marks=pytest.mark.long)]
"""One process for all attempts, and one for each."""


@pytest.mark.parametrize("mode", BOTH)
def test_a_worker_that_is_killed_leaves_nothing(submit, start_worker, worker_output, tmp_path, wait_until, mode):
    worker = start_worker("agent:leaves", *mode)
    submit("stays")
    wait_until((tmp_path / "stays.ready").exists, log=worker_output)
    below = list(list_family(worker.pid))

    worker.send_signal(signal.SIGKILL)

    wait_until(lambda: not any(map(is_running, [*noted(tmp_path), *below])), log=worker_output)
    assert not mode or not Path((tmp_path / "stays.directory").read_text()).exists()


@pytest.mark.parametrize("mode", BOTH)
def test_an_agent_that_is_stuck_is_ended_when_its_time_is_up(
    submit, start_worker, worker_output, tmp_path, wait_until, mode
):
    start_worker("agent:stuck", *mode, AGENT_LAYER_CLOSE_SECONDS="0.5")
    submit("t", limits=Limits(wall_seconds=scaled(2.0)))
    wait_until((tmp_path / "t.ready").exists, log=worker_output)
    stuck = noted(tmp_path)

    wait_until(lambda: not any(map(is_running, stuck)), log=worker_output)


def test_a_worker_that_is_told_to_end_leaves_nothing(
    dispatcher, submit, start_worker, worker_output, tmp_path, wait_until
):
    worker = start_worker("agent:leaves", "--isolate", "--drain", "0")
    groups = submit("stays")
    wait_until((tmp_path / "stays.ready").exists, log=worker_output)

    worker.send_signal(signal.SIGTERM)

    assert wait_for_exit(worker, log=worker_output) == 0
    assert running(tmp_path) == []
    (rollout,) = dispatcher.rollouts(groups)
    assert (rollout.status, rollout.num_failures) == ("queued", 0)


@pytest.mark.parametrize("mode", BOTH)
def test_an_agent_that_ends_its_process_whenever_it_is_loaded_is_one_sentence(
    start_worker, worker_output, write_module, mode
):
    write_module("deadly", "import os\n\nos._exit(9)\n")

    assert wait_for_exit(start_worker("deadly:agent", *mode), log=worker_output) == 2
    assert worker_output().count("\n") == 1
    assert "exit status 9" in worker_output()
