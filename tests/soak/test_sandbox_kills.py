"""A hundred times, a worker, a host or a supervisor is killed: five seconds later nothing of its boxes is left."""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from envs.sandbox import make_kind

from ..integration.sandbox.leftovers import is_alive, list_cgroups, list_descendants, list_directories, list_mounts
from ..waiting import read_line, wait_until

NUM_ROUNDS = 33
"""For each victim."""
HOST = """
import asyncio, sys
from envs.sandbox import connect_sandbox

async def main():
    async with connect_sandbox(sys.argv[1]) as connection:
        box = connection.box
        running = asyncio.create_task(box.exec(["sh", "-c", "setsid sleep 77 & sleep 77"], seconds=77))
        fork = await box.fork()
        await fork.write("x", bytes(100_000))
        async with box.open(["cat"]):
            print("up", flush=True)
            await running

asyncio.run(main())
"""
WORKER = """
import asyncio, sys
from envs.sandbox import SandboxSpec
from envs.sandbox import SupervisorHandle, TakeBox

async def main():
    handle, kind, host = SupervisorHandle(), *sys.argv[1:]
    request = TakeBox(owner="lease", task="t", spec=SandboxSpec(kind=kind), files={"a": "b"}, seconds=60)
    taken = await handle.take_box(request, lambda why: None)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", host, taken.address, stdout=-1)
    await process.stdout.readline()
    print(process.pid, handle.process_id, flush=True)
    await process.wait()
    await handle.end_owner("lease")  # as a worker does at the end of an attempt
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture(params=["namespace", "session", "oci", "process"])
async def kind_name(request):
    kind = make_kind(request.param)
    try:
        if not (support := await kind.probe()).works:
            pytest.skip(support.reason)
        return kind.name
    finally:
        await kind.close()


@contextmanager
def running_worker(kind_name):
    """A worker with an agent in a host, whose box has processes and a fork: process ids of all three."""
    command = [sys.executable, "-c", WORKER, kind_name, HOST]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as worker:
        host = None
        try:
            host, supervisor = map(int, read_line(worker).split())
            yield {"worker": worker.pid, "host": host, "supervisor": supervisor}
        finally:
            for pid in (worker.pid, host):
                with suppress(ProcessLookupError, TypeError):
                    os.kill(pid, signal.SIGKILL)


def find_leftovers(pids, below):
    supervisor = pids["supervisor"]
    sockets = Path(tempfile.gettempdir()).glob(f"agent-layer-supervisor-{pids['worker']}-*")
    return [*filter(is_alive, below), *list_directories(supervisor), *list_cgroups(supervisor), *sockets]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", ["worker", "host", "supervisor"])
def test_nothing_is_left_after_five_seconds(kind_name, victim):
    for _ in range(NUM_ROUNDS):
        with running_worker(kind_name) as pids:
            boxes = list_descendants(pids["supervisor"])
            everything = boxes | {pids["supervisor"], pids["host"]}
            os.kill(pids[victim], signal.SIGKILL)
            match victim:
                case "worker":
                    wait_until(lambda: not find_leftovers(pids, everything - {pids["host"]}), seconds=5)  # noqa: B023
                case "supervisor":
                    wait_until(lambda: not find_leftovers(pids, boxes), seconds=5)  # noqa: B023
                case _:  # boxes of other attempts, and those that wait, live on
                    wait_until(lambda: not any(map(is_alive, find_sleepers(boxes))), seconds=5)  # noqa: B023
        wait_until(lambda: not find_leftovers(pids, everything), seconds=5)  # noqa: B023
    assert not [mount for mount in list_mounts() if "agent-layer" in mount]


def find_sleepers(pids):
    """Commands of the box, by their argument."""
    for pid in pids:
        with suppress(OSError):
            if b"\0" + b"77" + b"\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                yield pid
