"""``work --on ray``: workers on a real Ray of this machine do tasks, die, are replaced and drained; no secret shows."""

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from agent_layer.schema.task import Task

from ...processes import find_parent, is_running, list_family, read_command
from ...waiting import read_line, scaled, wait_for_exit, wait_until

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")

HEAD = """
import sys, ray, ray._private.state
about = ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, logging_level="ERROR")
print(about.address_info["gcs_address"], about.address_info["session_dir"], flush=True)
for line in sys.stdin:
    print(ray._private.state.actors(), flush=True)
ray.shutdown()
"""

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a-token-of-these-tests"}


class Cluster:
    """A small Ray of these tests' own."""

    def __init__(self, head, log):
        self._head, self._log = head, log
        self.address, self.session_dir = read_line(head, log=log).split()

    def actors(self):
        """What Ray knows of its actors, as text."""
        self._head.stdin.write("\n")
        self._head.stdin.flush()
        return read_line(self._head, log=self._log)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """It is gone with the tests."""
    directory = tmp_path_factory.mktemp("ray")
    log = directory / "said"
    with log.open("wb") as message:
        head = subprocess.Popen(
            [sys.executable, "-c", HEAD],
            env=os.environ | TOKEN,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=message,
            text=True,
        )
    yield Cluster(head, log)
    below = list_family_without_shippers(head.pid)
    head.stdin.close()
    wait_for_exit(head, 100, log)
    head.stdout.close()
    wait_until(lambda: not any(is_running(pid) for pid in below))


def list_family_without_shippers(pid):
    """Shippers stay for as long as anybody writes."""
    return [one for one in list_family(pid) if not any("shipper" in word for word in read_command(one))]


def make_content(path):
    """Return the text; empty if Ray removed the file meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def find_actor(worker_pid):
    """The actor's process, above the worker and its leash."""
    pid = find_parent(worker_pid)
    while not any("WorkerActor" in word for word in read_command(pid)):
        pid = find_parent(pid)
    return pid


@pytest.mark.long
def test_tasks_are_done_an_actor_is_killed_and_followed_by_another_and_all_end_with_their_ray(
    start_worker, worker_output, dispatcher, names, worker_pids
):
    supervisor = start_worker("agent:agent", "--on", "ray", "--workers", "2", "--slots", "2", **TOKEN)
    wait_until(lambda: len(names()) == 2, 100, log=worker_output)
    before = worker_pids()
    groups = dispatcher.submit([Task(id=f"t{n}", run="default", group_size=2) for n in range(8)])

    os.kill(find_actor(min(before)), signal.SIGKILL)
    wait_until(lambda: len(worker_pids() - before) == 1 and len(worker_pids()) == 2, 100)

    assert all(group.num_accepted == 2 for group in dispatcher.wait(groups, scaled(100)))
    below = list_family_without_shippers(supervisor.pid)
    supervisor.send_signal(signal.SIGINT)
    assert wait_for_exit(supervisor, 100, worker_output) == 0
    assert worker_pids() == names() == set()
    wait_until(lambda: not any(is_running(pid) for pid in below))


@pytest.mark.long
def test_a_cluster_that_runs_shows_no_secret(cluster, start_worker, worker_output, stack, names):
    start_worker("agent:agent", "--on", "ray", RAY_ADDRESS=cluster.address, **TOKEN)
    wait_until(lambda: len(names()) == 1, 100, log=worker_output)

    assert "ALIVE" in (shown := cluster.actors())
    assert "WorkerActor" in shown
    assert stack.settings.api_key not in shown
    key = stack.settings.api_key.encode()
    files = {path: make_content(path) for path in Path(cluster.session_dir).rglob("*") if path.is_file()}
    assert len(files) > 10
    assert [path for path, content in files.items() if key in content] == []


@pytest.mark.long
def test_no_ray_at_the_address_is_one_sentence(start_worker, worker_output):
    assert wait_for_exit(start_worker("agent:agent", "--on", "ray", RAY_ADDRESS="127.0.0.1:9"), 100, worker_output) == 2
    assert worker_output().count("\n") == 1
    assert "ray at 127.0.0.1:9: no cluster answers" in worker_output()


def test_resources_that_ray_does_not_have_are_one_sentence(start_worker, worker_output):
    assert (
        wait_for_exit(start_worker("agent:agent", "--on", "ray", "--resources", '{"cpus": 1}'), 100, worker_output) == 2
    )
    assert "is no JSON object with any of num_cpus, num_gpus" in worker_output()
