"""Hostile clients, and ends of a worker at bad moments: its supervisor stays small, and leaves no box."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from envs.sandbox import SupervisorHandle, TakeBox, connect_sandbox
from envs.sandbox.supervisor.budget import ByteBudget, RequestRoom
from envs.sandbox.supervisor.messages import Hello

from ...waiting import read_line, scaled, until, wait_until
from ..sandbox.leftovers import is_alive, list_descendants
from .conftest import SPEC

NUM_CONNECTIONS, BODY_BYTES = 4, 140 << 20
WORKER = """
import asyncio
from envs.sandbox import SandboxSpec, SupervisorHandle, TakeBox, connect_sandbox

async def main():
    handle = SupervisorHandle()
    spec = SandboxSpec(kind="process")
    taken = await handle.take_box(TakeBox(owner="lease", task="t", spec=spec, seconds=60), lambda why: None)
    async with connect_sandbox(taken.address) as connection:
        async with connection.box.open(["sh", "-c", "echo up; sleep 600; true"]) as process:
            await process.stdout.readline()
            print(handle.process_id, flush=True)
            await process.wait()

asyncio.run(main())
"""


@pytest.fixture
async def handle():
    made = SupervisorHandle()
    yield made
    await made.close()


async def take(handle, owner):
    return await handle.take_box(TakeBox(owner=owner, task="t", spec=SPEC, seconds=scaled(60)), lambda _: None)


def resident_mb(pid):
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) >> 10


@asynccontextmanager
async def open_raw(taken):
    """A client that may send anything."""
    path, _, capability = taken.address.partition("#")
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        body = msgspec.msgpack.encode(Hello(capability=capability))
        writer.write(len(body).to_bytes(4, "big") + body)
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        yield writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def send_part(writer, sent):
    """Announce a request, and send almost all of it."""
    writer.write(BODY_BYTES.to_bytes(4, "big"))
    piece = bytes(1 << 20)
    for _ in range((BODY_BYTES >> 20) - 1):
        writer.write(piece)
        await writer.drain()
        sent.append(len(piece))


async def test_unfinished_requests_hold_as_much_memory_as_one_may_and_no_other_attempt_waits(handle):
    mine, other = await take(handle, "mine"), await take(handle, "other")
    before, sent, seen = resident_mb(handle.process_id), [], -1
    async with AsyncExitStack() as clients:
        writers = [await clients.enter_async_context(open_raw(mine)) for _ in range(NUM_CONNECTIONS)]
        sending = [asyncio.create_task(send_part(one, sent)) for one in writers]
        await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        while seen != len(sent):  # until no more is taken
            seen = len(sent)
            await asyncio.sleep(scaled(0.3))

        assert resident_mb(handle.process_id) - before < 250
        async with connect_sandbox(other.address) as connection:
            await connection.box.write("large", bytes(8 << 20))
            assert len(await connection.box.read("large", max_bytes=16 << 20)) == 8 << 20
        for one in sending:
            one.cancel()
        await asyncio.gather(*sending, return_exceptions=True)

    async with connect_sandbox(mine.address) as connection:
        await connection.box.write("large", bytes(64 << 20))
        assert (await connection.box.exec(["true"])).exit_code == 0


@pytest.mark.long
async def test_large_answers_of_one_attempt_are_made_one_after_the_other(handle):
    taken = await take(handle, "mine")
    async with connect_sandbox(taken.address) as connection:
        await connection.box.write("large", bytes(16 << 20))
        before, peak = resident_mb(handle.process_id), 0
        reading = asyncio.gather(*(connection.box.read("large", max_bytes=128 << 20) for _ in range(16)))
        while not reading.done():
            peak = max(peak, resident_mb(handle.process_id))
            await asyncio.sleep(0.01)

        assert {len(one) for one in await reading} == {16 << 20}
    assert peak - before < 350  # two at a time, a few copies of each


async def test_too_many_clients_of_one_attempt_are_refused_and_others_are_not(handle):
    mine, other = await take(handle, "mine"), await take(handle, "other")

    async def is_accepted(taken):
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            async with open_raw(taken):
                return True
        return False

    async with AsyncExitStack() as clients:
        for _ in range(64):
            await clients.enter_async_context(open_raw(mine))
        assert not await is_accepted(mine)
        assert await is_accepted(other)
    await until(lambda: is_accepted(mine))


@pytest.mark.parametrize("is_stopped", [True, pytest.param(False, marks=pytest.mark.long)], ids=["stopped", "running"])
def test_a_supervisor_whose_worker_is_killed_ends_its_boxes_even_if_it_was_stopped(is_stopped):
    with subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE, start_new_session=True) as worker:
        supervisor = int(read_line(worker))
        below = {supervisor, *list_descendants(supervisor)}
        try:
            if is_stopped:
                os.kill(supervisor, signal.SIGSTOP)
            worker.kill()
            wait_until(lambda: not any(map(is_alive, below)), seconds=5)
        finally:
            for one in filter(is_alive, below):
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)


async def test_shares_of_a_budget_are_given_in_order_and_those_of_cancelled_callers_come_back():
    shared = ByteBudget(10)
    mine, other = ByteBudget(8, shared), ByteBudget(8, shared)
    await mine.acquire(8)
    late = asyncio.create_task(mine.acquire(1))
    blocked = asyncio.create_task(other.acquire(5))
    await asyncio.sleep(0)
    small = asyncio.create_task(other.acquire(1))
    await asyncio.sleep(0.01)
    assert [one.done() for one in (late, blocked, small)] == [False, False, False]

    blocked.cancel()
    await small
    late.cancel()
    mine.release(8)
    other.release(1)

    await mine.acquire(100)  # as much as there is
    mine.release(100)
    await shared.acquire(10)


async def test_short_requests_wait_for_no_other_attempt():
    shared = ByteBudget(2 << 28)
    one, two, other = (RequestRoom(shared) for _ in range(3))
    for hostile in (one, two):
        await hostile.acquire(1 << 28)
    long = asyncio.create_task(other.acquire((1 << 20) + 1))
    for _ in range(4):
        await asyncio.wait_for(other.acquire(1 << 20), scaled(5))
    late = asyncio.create_task(other.acquire(1 << 17))
    await asyncio.sleep(0)
    assert not long.done() and not late.done()

    other.release(1 << 20)
    one.release(1 << 28)
    await asyncio.gather(long, late)
