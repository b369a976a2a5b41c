"""Workers on machines of their own: one is cut off beyond its lease, then healed; its late results are refused.

The machines are network namespaces where this one may make them; everywhere, they are processes that know nothing but
the addresses of relays that can be cut.
"""

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent_layer.dispatcher import Report, connect
from agent_layer.errors import LeaseLostError
from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.keys import Keys
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.local.stack import run_stack
from agent_layer.schema.task import Task
from agent_layer.store.store import open_store

from ...queues import Queue
from ...waiting import read_line, scaled, wait_for_exit
from ...working import ASK

RELAY = Path(__file__).parents[2] / "soak" / "dispatch" / "relay.py"

AGENT = (
    ASK
    + """
import asyncio, os, pathlib

here = pathlib.Path(__file__).parent

async def agent(task, rollout):
    await ask(rollout)
    if os.environ["MACHINE"] == "island":
        (here / f"waits-{rollout.rollout_id}").touch()
        while not (here / "cut").exists():
            await asyncio.sleep(0.02)
    return 1.0
"""
)


class Relay:
    """relay.py as a process; ``places`` are the ports or paths at which it listens."""

    def __init__(self, routes, *prefix):
        command = [*prefix, sys.executable, str(RELAY), *routes]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.places = read_line(self.process).split()

    def become(self, mood):
        self.process.stdin.write(f"{mood}\n")
        assert read_line(self.process) == f"{mood}\n"

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Machine:
    """A machine that reaches Redis, the gateway and ingest at three addresses, and knows nothing else."""

    def __init__(self, name, directory, settings, addresses, prefix=()):
        self.name, self.directory, self._prefix = name, directory, prefix
        redis, gateway, ingest = addresses
        self.settings = settings.model_copy(
            update={
                "dir": directory / name,
                "redis_url": f"redis://{redis}",
                "gateway_url": f"http://{gateway}",
                "ingest_url": f"http://{ingest}",
                "objects_url": None,
            }
        )
        self.log = directory / f"{name}.log"
        self.process = None

    def start_worker(self):
        environment = os.environ | self.settings.environment() | {"MACHINE": self.name}
        command = [*self._prefix, sys.executable, "-m", "agent_layer.cli", "work", "agent:agent", "--slots=4"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.directory, env=environment, stderr=log)

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def cleanup():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def stack(settings):
    quick = settings.model_copy(update={"lease_seconds": scaled(3.0), "heartbeat_seconds": 0.2, "connect_seconds": 1.0})
    with serve_in_thread(ScriptedEngine()) as engine, run_stack(quick, engine.url) as stack:
        yield stack


@pytest.fixture
def servers(stack, start_ingest):
    """Where Redis, the gateway and ingest are, as relays name it."""
    ingest = start_ingest(stack.settings)
    assert ingest.key == stack.settings.api_key
    urls = [stack.settings.redis_url, stack.settings.gateway_url, ingest.url]
    return [url.partition("://")[2] for url in urls]


class Relayed:
    """Machines that are processes behind relays."""

    def __init__(self, mood, stack, servers, directory, cleanup):
        self._mood, self._settings, self._servers = mood, stack.settings, servers
        self._directory, self._cleanup = directory, cleanup
        self._relays = {}

    def add(self, name):
        relay = self._relays[name] = Relay([f"127.0.0.1:0={server}" for server in self._servers])
        self._cleanup.callback(relay.end)
        machine = Machine(name, self._directory, self._settings, [f"127.0.0.1:{port}" for port in relay.places])
        self._cleanup.callback(machine.end)
        return machine

    def cut(self, name):
        self._relays[name].become(self._mood)

    def heal(self, name):
        self._relays[name].become("healed")


class Namespaces:
    """Machines that are network namespaces: each has a cable to a router, and the router relays to the servers.

    Sockets of the file system lead out of the router's namespace, which has no cable to anywhere else. None of this
    needs more rights than those that a new user namespace gives.
    """

    def __init__(self, stack, servers, directory, cleanup):
        self._settings, self._directory, self._cleanup = stack.settings, directory, cleanup
        paths = [str(directory / f"{number}.sock") for number in range(len(servers))]
        outside = Relay([f"{path}={server}" for path, server in zip(paths, servers, strict=True)])
        cleanup.callback(outside.end)
        self._router = Relay([f"0.0.0.0:0={path}" for path in paths], "unshare", "--user", "--map-root-user", "--net")
        cleanup.callback(self._router.end)
        self._inside = enter(self._router.process.pid)
        self._num_machines = 0

    def add(self, name):
        self._num_machines += 1
        holder = subprocess.Popen(
            [*self._inside, "unshare", "--net", sys.executable, "-c", "print(flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._cleanup.callback(end_holder, holder)
        read_line(holder)
        subnet = f"10.77.{self._num_machines}"
        self._ip("link", "add", name, "type", "veth", "peer", "name", "cable", "netns", str(holder.pid))
        self._ip("addr", "add", f"{subnet}.1/24", "dev", name)
        self._ip("link", "set", name, "up")
        prefix = enter(holder.pid)
        for one in (["addr", "add", f"{subnet}.2/24", "dev", "cable"], ["link", "set", "cable", "up"]):
            subprocess.run([*prefix, "ip", *one], check=True)
        assert not reaches(prefix, self._settings.gateway_url), "a machine reaches its router, and nothing else"
        addresses = [f"{subnet}.1:{port}" for port in self._router.places]
        machine = Machine(name, self._directory, self._settings, addresses, prefix)
        self._cleanup.callback(machine.end)
        return machine

    def cut(self, name):
        """Pull the cable out of the router: packets vanish without an error."""
        self._ip("link", "set", name, "down")

    def heal(self, name):
        self._ip("link", "set", name, "up")

    def _ip(self, *arguments):
        subprocess.run([*self._inside, "ip", *arguments], check=True)


def enter(pid):
    """Begin a command that runs in the network of that process."""
    return ["nsenter", "--target", str(pid), "--user", "--preserve-credentials", "--net"]


def reaches(prefix, url):
    host, _, port = url.rpartition("/")[2].partition(":")
    program = f"import socket; socket.create_connection(({host!r}, {port}), 2)"
    return (
        subprocess.run([*prefix, sys.executable, "-c", program], stderr=subprocess.DEVNULL, check=False).returncode == 0
    )


def end_holder(holder):
    holder.kill()
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()


def why_no_namespaces():
    """None where this machine lets us make network namespaces and cables between them."""
    missing = [program for program in ("unshare", "nsenter", "ip") if shutil.which(program) is None]
    if missing:
        return f"no network namespaces here: no program {missing[0]!r}"
    attempt = ["ip", "link", "add", "one", "type", "veth", "peer", "name", "other"]
    made = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", *attempt], capture_output=True, text=True, check=False
    )
    return f"no network namespaces here: {made.stderr.strip()}" if made.returncode else None


@pytest.fixture(params=["silent", *(pytest.param(one, marks=pytest.mark.long) for one in ("closed", "namespaces"))])
def network(request, stack, servers, tmp_path, cleanup):
    """Where machines are made and cut off."""
    if request.param != "namespaces":
        return Relayed(request.param, stack, servers, tmp_path, cleanup)
    if why_not := why_no_namespaces():
        pytest.skip(why_not)
    return Namespaces(stack, servers, tmp_path, cleanup)


def test_what_a_machine_does_while_it_is_cut_off_is_done_elsewhere(network, stack, tmp_path, wait_until):
    (tmp_path / "agent.py").write_text(AGENT)
    dispatcher, store = connect(stack.settings), open_store(stack.settings)
    island, mainland = network.add("island"), network.add("mainland")
    island.start_worker()
    (group_id,) = dispatcher.submit([Task(id="t", run="default", group_size=4)])
    wait_until(lambda: len(list(tmp_path.glob("waits-*"))) == 4, log=island.log)
    mainland.start_worker()

    network.cut("island")
    (tmp_path / "cut").touch()
    (group,) = dispatcher.wait([group_id], timeout=scaled(90))
    network.heal("island")

    assert (group.is_closed, group.num_accepted) == (True, 4)
    lost, counted = [[f"{group_id}.{member}-{attempt}" for member in range(4)] for attempt in (0, 1)]
    wait_until(lambda: all(was_refused(island.log.read_text(), one) for one in lost), log=island.log)
    mainland.process.terminate()
    assert wait_for_exit(mainland.process, log=mainland.log) == 0
    (again,) = dispatcher.wait(dispatcher.submit([Task(id="again", run="default", group_size=2)]), timeout=scaled(90))
    assert again.num_accepted == 2, "a machine that was healed works again"
    deliveries = store.follow("trainer", "default", wait_seconds=scaled(30.0))
    delivery = next(deliveries)
    assert [(one.trajectory_id, one.reward) for one in delivery.trajectories] == [(one, 1.0) for one in counted]
    wait_until(lambda: len(store.query(task="t", status="lost").items) == 4)
    assert {row.trajectory_id for row in store.query(task="t", accepted=True).items} == set(counted)
    assert [one.num_failures for one in dispatcher.rollouts([group_id])] == [1] * 4
    delivery.ack()
    assert next(deliveries).group.group_id == again.group_id


def was_refused(log, trajectory_id):
    """Its report was refused with the sentence, or a heartbeat had ended it before it could report."""
    return any(
        (f"attempt {trajectory_id}: expected to hold its rollout" in line and "discard this attempt" in line)
        or f"lease ended trajectory={trajectory_id} why=lost" in line
        for line in log.splitlines()
    )


@pytest.mark.parametrize("mood", ["silent", "closed"])
def test_a_finished_result_that_comes_after_the_cut_is_refused_with_the_sentence(mood, settings, redis, cleanup):
    relay = Relay([f"127.0.0.1:0={settings.redis_url.removeprefix('unix://')}"])
    cleanup.callback(relay.end)
    relayed = settings.model_copy(update={"redis_url": f"redis://127.0.0.1:{relay.places[0]}", "lease_seconds": 0.5})
    far = Queue(cleanup.enter_context(open_redis(relayed)), Keys(settings.namespace), relayed)
    near = Queue(redis, Keys(settings.namespace), settings)
    near.add([Task(id="t", run="r")])
    (cut_off,) = far.claim("island", 1)

    relay.become(mood)
    (lease,) = near.claim("mainland", 1, wait_seconds=scaled(30))
    relay.become("healed")
    late = Report(lease=cut_off, ending="completed")

    (refusal,) = far.settle([late])
    assert isinstance(refusal, LeaseLostError)
    assert str(refusal) == (
        f"attempt {cut_off.trajectory_id}: expected to hold its rollout, found attempt 1 held by 'mainland';"
        " discard this attempt, it has been handed on"
    )
    assert near.settle([Report(lease=lease, ending="completed")]) == [None]
    (refusal,) = far.settle([late])
    assert str(refusal) == (
        f"attempt {cut_off.trajectory_id}: expected to hold its rollout, found it completed; discard this attempt"
    )
