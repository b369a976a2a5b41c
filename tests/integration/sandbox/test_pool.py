"""The pool: boxes are warm, used once, replaced, bounded, and none is left."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys

import pytest

from agent_layer.errors import BadInputError, SandboxError
from envs.sandbox import PoolOptions, SandboxSpec, open_pool
from envs.sandbox.registry import choose_kind, make_kind

from ...waiting import read_line, until, wait_for_exit, wait_until
from .docker_daemon import list_box_processes
from .leftovers import (
    find_by_argument,
    is_alive,
    list_cgroups,
    list_descendants,
    list_descriptors,
    list_directories,
    list_mounts,
    started_at,
)
from .patience import make_patient

pytestmark = pytest.mark.asyncio(loop_scope="module")
SPEC = SandboxSpec(kind="process")
"""Works on every machine; a pool treats all kinds alike."""


def open_own_pool(kind_name="process", options=None):
    return open_pool(options, kinds=[make_patient(make_kind(kind_name))])


class SlowKind:
    """A kind whose starts end when the test lets them, and that counts them."""

    name, isolation, cost, images, stops = "slow", "machine", 0, frozenset({"host"}), ""

    def __init__(self, behind):
        self.behind = behind
        self.gate = asyncio.Event()
        self.num_starting = self.most_starting = self.num_started = 0
        self.failures = []

    async def probe(self):
        return await self.behind.probe()

    async def start(self, _, *, owner):
        self.num_starting += 1
        self.most_starting = max(self.most_starting, self.num_starting)
        try:
            await self.gate.wait()
            if self.failures:
                raise self.failures.pop()
            self.num_started += 1
            return await self.behind.start(SandboxSpec(kind="process"), owner=owner)
        finally:
            self.num_starting -= 1

    async def close(self):
        await self.behind.close()


@pytest.fixture
def slow():
    return SlowKind(make_kind("process"))


SLOW = SandboxSpec(kind="slow")


async def test_the_first_lines_of_the_manual():
    async with open_pool() as pool:
        box = await pool.take(SPEC, owner="me")
        result = await box.exec(["python3", "-c", "print(1)"])

    assert (result.status, result.exit_code, result.stdout) == ("exited", 0, b"1\n")


async def test_the_second_take_finds_a_box_ready():
    async with open_own_pool() as pool:
        first = await pool.take(SPEC, owner="me")
        await until(lambda: pool.stats().ready == 1)
        second = await pool.take(SPEC, owner="me")

        stats = pool.stats()

    assert first.id != second.id
    assert (stats.hits, stats.misses, stats.running) == (1, 1, 2)
    assert stats.start_seconds_p50 > 0


async def test_a_box_is_never_handed_out_twice():
    async with open_own_pool() as pool:
        ids = set()
        for _ in range(5):
            box = await pool.take(SPEC, owner="me")
            assert await box.list() == ()
            await box.write("mark", b"")
            ids.add(box.id)
            await box.close()

    assert len(ids) == 5


@pytest.mark.parametrize(("num_killed", "num_dead"), [(1, 0), (2, 1)], ids=["spare", "server"])
async def test_a_box_that_died_waiting_is_not_handed_out(kind, num_killed, num_dead):
    spec, own = SandboxSpec(kind=kind.name), os.getpid()
    async with open_own_pool(kind.name) as pool:
        before = list_box_processes(kind.name, own)
        await pool.expect([(spec, 1)])
        await until(lambda: pool.stats().ready == 1)
        youngest = sorted(
            list_box_processes(kind.name, own) - before, key=lambda pid: (started_at(pid), pid), reverse=True
        )
        for pid in youngest[:num_killed]:  # the spare child of the server, which is not needed, then the server
            os.kill(pid, signal.SIGKILL)
            await until(lambda pid=pid: not is_alive(pid))

        box = await pool.take(spec, owner="me")

        assert (await box.exec(["true"])).exit_code == 0
        assert (pool.stats().dead_at_hand_out, pool.stats().hits) == (num_dead, 1 - num_dead)


async def test_as_many_are_ready_as_are_expected():
    async with open_own_pool() as pool:
        await pool.expect([(SPEC, 3)])
        await until(lambda: pool.stats().ready == 3)
        await pool.expect([])
        await until(lambda: pool.stats().ready == 0)

        assert pool.stats().starting == 0


async def test_no_more_boxes_start_at_the_same_time_than_allowed(slow):
    async with open_pool(PoolOptions(max_starts=2, ready_per_spec=0), kinds=[slow]) as pool:
        takes = [asyncio.create_task(pool.take(SLOW, owner="me")) for _ in range(5)]
        await until(lambda: slow.num_starting == 2)
        slow.gate.set()
        await asyncio.gather(*takes)

        assert (slow.most_starting, slow.num_started) == (2, 5)


async def test_no_more_boxes_run_than_allowed(slow):
    slow.gate.set()
    async with open_pool(PoolOptions(max_running=1), kinds=[slow]) as pool:
        box = await pool.take(SLOW, owner="me")
        with pytest.raises(SandboxError, match=r"none was ready within 0.05 s, 1 of at most 1 are taken"):
            await pool.take(SLOW, owner="me", seconds=0.05)
        waiting = asyncio.create_task(pool.take(SLOW, owner="me"))
        await box.close()

        assert (await (await waiting).exec(["true"])).exit_code == 0


async def test_a_start_outlives_the_take_that_needed_it(slow):
    async with open_pool(PoolOptions(ready_per_spec=0), kinds=[slow]) as pool:
        with pytest.raises(SandboxError, match="none was ready"):
            await pool.take(SLOW, owner="me", seconds=0.05)
        slow.gate.set()
        await until(lambda: pool.stats().starting == 0)
        await pool.take(SLOW, owner="me")

    assert slow.num_started <= 2


async def test_a_failed_start_fails_one_take_and_no_other(slow):
    async with open_pool(PoolOptions(max_starts=1, ready_per_spec=0), kinds=[slow]) as pool:
        slow.failures.append(SandboxError("sandbox: no room"))
        takes = [asyncio.create_task(pool.take(SLOW, owner="me")) for _ in range(2)]
        slow.gate.set()
        results = await asyncio.gather(*takes, return_exceptions=True)

        assert sorted(type(one).__name__ for one in results) == ["PooledSandbox", "SandboxError"]
        assert (pool.stats().failed_starts, pool.stats().running) == (1, 1)


async def test_a_fork_counts_as_taken():
    async with open_own_pool() as pool:
        box = await pool.take(SPEC, owner="me")
        await box.write("a", b"x")
        other = await box.fork()

        assert (await other.read("a"), other.owner, pool.stats().running) == (b"x", "me", 2)
        await other.close()
        assert pool.stats().running == 1


async def test_a_take_begins_with_the_files_of_a_snapshot():
    async with open_own_pool() as pool:
        box = await pool.take(SPEC, owner="me")
        await box.write("a", b"x")
        other = await pool.take(SPEC, owner="you", snapshot=await box.snapshot())

        assert (await other.read("a"), other.owner) == (b"x", "you")


async def test_a_kind_that_does_not_exist_is_named():
    async with open_pool() as pool:
        with pytest.raises(BadInputError, match="no kind"):
            await pool.take(SandboxSpec(isolation="machine"), owner="me")
    with pytest.raises(BadInputError, match="'dockr': expected one of process, namespace"):
        make_kind("dockr")


async def test_the_cheapest_kind_that_isolates_well_enough_is_chosen(kind):
    kinds = [make_kind("process"), kind]

    assert (await choose_kind(SandboxSpec(isolation=kind.isolation), kinds)).name == kind.name


async def test_nothing_is_left_of_a_closed_pool(kind):
    before = _everything()
    async with open_pool() as pool:
        boxes = [await pool.take(SandboxSpec(kind=kind.name), owner="me") for _ in range(3)]
        running = asyncio.create_task(boxes[0].exec(["sh", "-c", "setsid sleep 600 & sleep 600"]))
        await boxes[1].exec(["sh", "-c", "setsid sleep 600 &"])
        await boxes[2].close()

    assert (await running).status == "gone"
    assert [set(left) - set(known) for left, known in zip(_everything(), before, strict=True)] == [set()] * 5


def _everything():
    pid = os.getpid()
    return list_descendants(), list_cgroups(pid), list_directories(pid), list_mounts(), list_descriptors()


async def test_a_killed_zygote_costs_its_boxes_and_is_started_again():
    kind = make_kind("namespace")
    if not (support := await kind.probe()).works:
        await kind.close()
        pytest.skip(support.reason)
    async with open_pool(PoolOptions(ready_per_spec=0), kinds=[kind]) as pool:  # no box is being made at the kill
        box = await pool.take(SandboxSpec(), owner="me")
        zygotes = find_by_argument(list_descendants(), "zygote")
        family = {*zygotes, *(one for pid in zygotes for one in list_descendants(pid))}
        for pid in zygotes:
            with contextlib.suppress(ProcessLookupError):  # it died of another's death
                os.kill(pid, signal.SIGKILL)

        assert (await box.exec(["true"])).status == "gone"
        await until(lambda: not any(map(is_alive, family)))
        again = await pool.take(SandboxSpec(), owner="me")
        assert (await again.exec(["true"])).status == "exited"


async def test_a_zygote_killed_while_a_box_starts_costs_no_start():
    kind = make_kind("namespace")
    try:
        if not (support := await kind.probe()).works:
            pytest.skip(support.reason)
        for tenths_of_ms in range(0, 60, 6):
            starting = asyncio.create_task(kind.start(SandboxSpec(), owner="me"))
            await asyncio.sleep(tenths_of_ms / 10_000)
            for pid in find_by_argument(list_descendants(), "zygote"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await (await starting).close()
    finally:
        await kind.close()


async def test_a_start_survives_a_zygote_whose_end_the_worker_has_not_yet_seen():
    before = list_cgroups(os.getpid())
    kind = make_kind("namespace")
    try:
        if not (support := await kind.probe()).works:
            pytest.skip(support.reason)
        await (await kind.start(SandboxSpec(), owner="me")).close()
        for keeper in find_by_argument(list_descendants(), "zygote"):
            for pid in find_by_argument(list_descendants(keeper), "zygote"):  # its keeper removes the cgroups
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not list_cgroups(os.getpid()) - before)  # the loop would learn that the zygote has ended

        await (await kind.start(SandboxSpec(), owner="me")).close()
    finally:
        await kind.close()


WORKER = """
import asyncio, sys
from envs.sandbox import SandboxSpec, open_pool

async def main():
    async with open_pool() as pool:
        boxes = [await pool.take(SandboxSpec(kind=sys.argv[1]), owner="me") for _ in range(3)]
        for box in boxes:
            await box.write("file", b"x" * 100000)
            asyncio.create_task(box.exec(["sh", "-c", "setsid sleep 600 & touch up; sleep 600"], seconds=600))
            await box.exec(["sh", "-c", "until test -e up; do sleep 0.01; done"])
        print("up", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_nothing_is_left_of_a_worker_that_was_killed(kind):
    before = list_mounts()
    worker = _start_worker(kind.name)
    try:
        assert read_line(worker) == b"up\n"
        pids = list_box_processes(kind.name, worker.pid)
        assert len(pids) >= 9

        worker.kill()
        wait_for_exit(worker)

        await until(lambda: not any(map(is_alive, pids)))
        await until(lambda: not list_directories(worker.pid) | list_cgroups(worker.pid))
        await until(lambda: not set(list_mounts()) - set(before))
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()


def _start_worker(kind_name):
    return subprocess.Popen([sys.executable, "-c", WORKER, kind_name], stdout=subprocess.PIPE)
