"""``work --on ray``: workers on a real Ray of this machine do tasks, die, are replaced and drained; no secret shows."""

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from agent_layer.schema.task import Task

from ...processes import command_of, family_of, is_running, parent_of
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
    with log.open("wb") as said:
        head = subprocess.Popen(
            [sys.executable, "-c", HEAD],
            env=os.environ | TOKEN,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
    yield Cluster(head, log)
    below = family_without_shippers_of(head.pid)
    head.stdin.close()
    wait_for_exit(head, 100, log)
    head.stdout.close()
    wait_until(lambda: not any(is_running(pid) for pid in below))


def family_without_shippers_of(pid):
    """Shippers stay for as long as anybody writes."""
    return [one for one in family_of(pid) if not any("shipper" in word for word in command_of(one))]


def content_of(path):
    """Return the text; empty if Ray removed the file meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def actor_of(worker_pid):
    """The actor's process, above the worker and its leash."""
    pid = parent_of(worker_pid)
    while not any("WorkerActor" in word for word in command_of(pid)):
        pid = parent_of(pid)
    return pid


def test_tasks_are_done_an_actor_is_killed_and_followed_by_another_and_all_end_with_their_ray(
    start_worker, said, dispatcher, names, worker_pids
):
    supervisor = start_worker("agent:agent", "--on", "ray", "--workers", "2", "--slots", "2", **TOKEN)
    wait_until(lambda: len(names()) == 2, 100, log=said)
    before = worker_pids()
    groups = dispatcher.submit([Task(id=f"t{n}", run="default", group_size=2) for n in range(8)])

    os.kill(actor_of(min(before)), signal.SIGKILL)
    wait_until(lambda: len(worker_pids() - before) == 1 and len(worker_pids()) == 2, 100)

    assert all(group.num_accepted == 2 for group in dispatcher.wait(groups, scaled(100)))
    below = family_without_shippers_of(supervisor.pid)
    supervisor.send_signal(signal.SIGINT)
    assert wait_for_exit(supervisor, 100, said) == 0
    assert worker_pids() == names() == set()
    wait_until(lambda: not any(is_running(pid) for pid in below))


def test_a_cluster_that_runs_shows_no_secret(cluster, start_worker, said, stack, names):
    start_worker("agent:agent", "--on", "ray", RAY_ADDRESS=cluster.address, **TOKEN)
    wait_until(lambda: len(names()) == 1, 100, log=said)

    assert "ALIVE" in (shown := cluster.actors())
    assert "WorkerActor" in shown
    assert stack.settings.api_key not in shown
    key = stack.settings.api_key.encode()
    files = {path: content_of(path) for path in Path(cluster.session_dir).rglob("*") if path.is_file()}
    assert len(files) > 10
    assert [path for path, content in files.items() if key in content] == []


def test_no_ray_at_the_address_is_one_sentence(start_worker, said):
    assert wait_for_exit(start_worker("agent:agent", "--on", "ray", RAY_ADDRESS="127.0.0.1:9"), 100, said) == 2
    assert said().count("\n") == 1
    assert "ray at 127.0.0.1:9: no cluster answers" in said()


def test_resources_that_ray_does_not_have_are_one_sentence(start_worker, said):
    assert wait_for_exit(start_worker("agent:agent", "--on", "ray", "--resources", '{"cpus": 1}'), 100, said) == 2
    assert "is no JSON object with any of num_cpus, num_gpus" in said()
