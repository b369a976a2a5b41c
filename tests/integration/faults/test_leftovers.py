"""What attempts leave behind ends with them, or with their worker: daemons, directories, the processes themselves."""

import signal
from pathlib import Path

import pytest

from agent_layer.schema.task import Limits, Task

from ...processes import family_of, is_running

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
    note("agent")
    daemonise("plain", clears_environment=False)
    daemonise("bare", clears_environment=True)
    if os.fork() == 0:
        note("forked")
        time.sleep(600)
        os._exit(0)
    pathlib.Path(tempfile.mkdtemp(), "big").write_text("x")
    (HERE / "directory").write_text(os.environ.get("TMPDIR", ""))
    while not all((HERE / f"{name}.pid").exists() for name in ("plain", "bare", "forked")):
        await asyncio.sleep(0.01)
    (HERE / "ready").touch()
    if task.id == "stays":
        await asyncio.sleep(600)
    if task.id == "crashes" and rollout.attempt == 0:
        os._exit(3)
    return 1.0

async def stuck(task, rollout):
    note("agent")
    (HERE / "ready").touch()
    time.sleep(600)
"""


@pytest.fixture
def pace():
    return {"lease_seconds": 4.0, "heartbeat_seconds": 0.2, "close_seconds": 0.5}


@pytest.fixture(autouse=True)
def _agent(write_module):
    write_module("agent", AGENT)


def noted(directory):
    return [int(path.read_text()) for path in directory.glob("*.pid")]


@pytest.mark.parametrize("name", ["ends", "crashes"])
def test_what_an_attempt_left_is_gone_when_it_counts(dispatcher, start_worker, tmp_path, name):
    start_worker("agent:leaves", "--isolate", "--slots", "1")

    (group,) = dispatcher.wait(dispatcher.submit([Task(id=name, run="default")]), timeout=60)

    assert group.num_accepted == 1
    assert len(noted(tmp_path)) == 4
    assert not [pid for pid in noted(tmp_path) if is_running(pid)]
    assert not Path((tmp_path / "directory").read_text()).exists()


def test_a_cancelled_attempt_leaves_nothing(dispatcher, start_worker, tmp_path, wait_until):
    start_worker("agent:leaves", "--isolate", "--slots", "1")
    groups = dispatcher.submit([Task(id="stays", run="default")])
    wait_until((tmp_path / "ready").exists, 60)

    dispatcher.cancel(groups)

    wait_until(lambda: not any(map(is_running, noted(tmp_path))), 60)


@pytest.mark.parametrize("mode", [[], ["--isolate"]], ids=["shared", "isolated"])
def test_a_worker_that_is_killed_leaves_nothing(dispatcher, start_worker, tmp_path, wait_until, mode):
    worker = start_worker("agent:leaves", *mode)
    dispatcher.submit([Task(id="stays", run="default")])
    wait_until((tmp_path / "ready").exists, 60)
    below = list(family_of(worker.pid))

    worker.send_signal(signal.SIGKILL)

    wait_until(lambda: not any(map(is_running, [*noted(tmp_path), *below])), 60)
    assert not mode or not Path((tmp_path / "directory").read_text()).exists()


@pytest.mark.parametrize("mode", [[], ["--isolate"]], ids=["shared", "isolated"])
def test_an_agent_that_is_stuck_is_ended_when_its_time_is_up(dispatcher, start_worker, tmp_path, wait_until, mode):
    start_worker("agent:stuck", *mode)
    groups = dispatcher.submit([Task(id="t", run="default", limits=Limits(wall_seconds=5.0))])
    wait_until((tmp_path / "ready").exists, 60)
    stuck = noted(tmp_path)

    wait_until(lambda: not any(map(is_running, stuck)), 60)
    dispatcher.cancel(groups)


def test_a_worker_that_is_told_to_end_leaves_nothing(dispatcher, start_worker, tmp_path, wait_until):
    worker = start_worker("agent:leaves", "--isolate", "--drain", "0")
    groups = dispatcher.submit([Task(id="stays", run="default")])
    wait_until((tmp_path / "ready").exists, 60)

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(60) == 0
    assert not any(map(is_running, noted(tmp_path)))
    assert dispatcher.rollouts(groups)[0].num_failures == 0


@pytest.mark.parametrize("mode", [[], ["--isolate"]], ids=["shared", "isolated"])
def test_an_agent_that_ends_its_process_whenever_it_is_loaded_is_one_sentence(start_worker, said, write_module, mode):
    write_module("deadly", "import os\n\nos._exit(9)\n")

    assert start_worker("deadly:agent", *mode).wait(60) == 2
    assert said().count("\n") == 1
    assert "exit status 9" in said()
