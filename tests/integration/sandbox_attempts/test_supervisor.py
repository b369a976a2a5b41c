"""A supervisor: what a capability reaches, what is frozen, and what ends with whom."""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from agent_layer.errors import BadInputError, SandboxError
from agent_layer.state import read_taken_sandboxes
from envs.sandbox import Resources, SandboxSpec, SupervisorHandle, TakeBox, connect_sandbox
from envs.sandbox.requests import Read
from envs.sandbox.supervisor.messages import Call, Hello

from ...waiting import scaled, until, within
from ..sandbox.leftovers import find_by_argument, is_alive, list_descendants
from .conftest import SPEC

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_supervisor():
    """One for all tests that neither kill nor close it; its worker has keys."""
    handle = SupervisorHandle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT_LAYER_API_KEY", "planted")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
        await handle.stats()
    yield handle
    await handle.close()


@pytest_asyncio.fixture(loop_scope="module")
async def supervisor(shared_supervisor):
    """That of all tests, without what other tests took."""
    yield shared_supervisor
    for owner in ("mine", "other"):
        await shared_supervisor.end_owner(owner)


@pytest_asyncio.fixture(loop_scope="module")
async def own_supervisor():
    """One that a test may kill."""
    handle = SupervisorHandle()
    yield handle
    await handle.close()


async def take(supervisor, owner, on_lost=lambda _: None, **fields):
    request = TakeBox(**{"owner": owner, "task": "t", "spec": SPEC, "seconds": scaled(60)} | fields)
    return await supervisor.take_box(request, on_lost)


async def test_a_capability_reaches_the_box_of_its_attempt_and_no_other(supervisor):
    mine, other = await asyncio.gather(take(supervisor, "mine"), take(supervisor, "other"))
    async with connect_sandbox(mine.address) as connection:
        await connection.box.write("a", b"x")
        stolen = connection.box
        stolen.id = other.facts.id
        with pytest.raises(BadInputError, match="does not reach that box"):
            await stolen.read("a")
        with pytest.raises(BadInputError, match="an agent has its own box only"):
            await connection.take(SPEC)
    for wrong in (f"{mine.address[:-1]}g", f"{mine.address}0", mine.address.replace("#", "#0")):
        with pytest.raises(SandboxError, match="capability is wrong"):
            async with connect_sandbox(wrong):
                pass


async def test_a_scorer_takes_fresh_boxes_up_to_a_number_and_they_end_with_its_connection(supervisor):
    taken = await take(supervisor, "mine", files={"secret": "x"})
    address = await supervisor.allow_scoring("mine", "t", SPEC, max_boxes=2)
    async with connect_sandbox(address) as connection:
        with pytest.raises(BadInputError, match="does not reach the agent's box"):
            _ = connection.box
        boxes = [await connection.take() for _ in range(2)]
        assert taken.facts.id not in {box.id for box in boxes}
        assert await boxes[0].list() == ()
        with pytest.raises(BadInputError, match="at most 2 boxes"):
            await connection.take()
        await boxes[0].close()
        await (await connection.take()).exec(["true"])
        rows = await supervisor.list_boxes()
        assert sorted(row.role for row in rows) == ["agent", "scorer", "scorer"]

    await until(lambda: _has_boxes(supervisor, 1))
    usage = await supervisor.end_scoring("mine")
    assert usage.num_scoring_boxes == 3
    assert 0 < usage.scoring_seconds <= usage.scoring_box_seconds
    assert usage.box_seconds > 0
    with pytest.raises(SandboxError, match="capability is wrong"):
        async with connect_sandbox(address):
            pass


async def _has_boxes(supervisor, number):
    return len(await supervisor.list_boxes()) == number


async def test_a_frozen_box_runs_nothing_more_and_its_processes_are_killed(supervisor):
    taken = await take(supervisor, "mine")
    async with connect_sandbox(taken.address) as connection:
        box = connection.box
        running = asyncio.create_task(box.exec(["sh", "-c", "echo kept > out; touch up; sleep 600; echo late > out"]))
        await until(lambda: _has_file(box, "up"))

        files = await supervisor.collect("mine", ["out", "none/below"], 1 << 20)

        assert (await running).status == "gone"
        assert (await box.exec(["true"])).status == "gone"
        with pytest.raises(SandboxError):
            await box.read("out")
    assert b"kept" in files.archive
    assert b"late" not in files.archive
    assert files.missing == ["none/below"]
    assert await supervisor.list_boxes() == []


async def _has_file(box, name):
    return name in {entry.name for entry in await box.list()}


async def test_no_link_brings_files_that_are_not_declared(supervisor):
    taken = await take(supervisor, "mine")
    async with connect_sandbox(taken.address) as connection:
        await connection.box.write("hidden/answer", b"x")
        await connection.box.exec(["sh", "-c", "ln -s hidden/answer out; ln -s hidden folder"])

    files = await supervisor.collect("mine", ["out", "folder/answer"], 1 << 20)

    assert files.missing == ["out", "folder/answer"]
    assert b"answer" not in files.archive


SPARSE = "for n in range(100): open(f'out/{n}', 'wb').truncate(1 << 22)"
DEEP = "os.chdir('out')\nfor _ in range(1100): os.mkdir('d'); os.chdir('d')"


@pytest.mark.parametrize(("code", "too_large"), [(SPARSE, True), (DEEP, False)], ids=["sparse", "deep"])
async def test_artifacts_that_cannot_be_read_are_the_agents_fault(supervisor, code, too_large):
    taken = await take(supervisor, "mine", spec=SandboxSpec(kind="process", resources=Resources(disk_mb=8)))
    async with connect_sandbox(taken.address) as connection:
        command = ["python3", "-c", f"import os\nos.mkdir('out')\n{code}"]
        result = await connection.box.exec(command, seconds=scaled(30))
        assert result.exit_code == 0, result.stderr

    files = await supervisor.collect("mine", ["out"], 1 << 20)

    assert (files.too_large, files.missing) == (too_large, [] if too_large else ["out"])
    assert b"out" not in files.archive


async def test_a_client_that_never_reads_runs_out_of_calls(supervisor):
    taken = await take(supervisor, "mine")
    path, _, capability = taken.address.rpartition("#")
    reader, writer = await asyncio.open_unix_connection(path)
    _send(writer, Hello(capability=capability))
    await reader.readexactly(4)
    reader._transport.pause_reading()
    async with within(60, "the end of its connection"):
        with pytest.raises(ConnectionError):
            await _call_often(supervisor, writer)

    assert (await supervisor.stats()).running == 1
    writer.close()


async def _call_often(supervisor, writer):
    for number in range(10_000):
        _send(writer, Call(number=number, request=Read(box="none", path="")))
        if number % 100 == 0:  # so that these calls have ended, or wait for the client
            await writer.drain()
            await supervisor.stats()


def _send(writer, message):
    body = msgspec.msgpack.encode(message)
    writer.write(len(body).to_bytes(4, "big") + body)


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff" * 8,
        (1 << 28).to_bytes(4, "big"),
        b"\0\0\0\5hello",
        b"\0\0\0\0",
        b"\0\0\2\0" + b"\x91" * 512,
        b"\0\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_no_message_ends_only_its_own_connection(supervisor, sent):
    taken = await take(supervisor, "mine")
    path = taken.address.rpartition("#")[0]
    connections = [await asyncio.open_unix_connection(path) for _ in range(20)]
    for _, writer in connections:
        writer.write(sent)
        writer.write_eof()

    async with within(60, "the ends of all connections"), connect_sandbox(taken.address) as connection:
        for reader, writer in connections:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        await until(connection.box.is_alive)


async def test_a_live_process_streams_both_ways_and_is_killed_at_the_end(supervisor):
    taken = await take(supervisor, "mine")
    async with connect_sandbox(taken.address) as connection:
        async with connection.box.open(["cat"]) as process:
            process.stdin.write(b"x" * 3_000_000)
            process.stdin.write_eof()
            received = 0
            while chunk := await process.stdout.read(1 << 16):
                received += len(chunk)
            assert (received, (await process.wait()).exit_code) == (3_000_000, 0)
        async with connection.box.open(["sleep", "600"]) as process:
            pass
        assert (await process.wait()).status in ("signalled", "gone")
        async with connection.box.open(["a\0b"]) as process:
            assert (await process.wait()).exit_code == 125


async def test_operations_overlap_and_errors_are_those_of_the_box(supervisor):
    taken = await take(supervisor, "mine")
    async with connect_sandbox(taken.address) as connection:
        box = connection.box
        slow = asyncio.create_task(box.exec(["sh", "-c", "until test -e go; do sleep 0.01; done"]))
        with pytest.raises(FileNotFoundError):
            await box.read("none")
        fork = await box.fork()
        await fork.write("go", b"")
        await fork.close()
        assert not slow.done()
        await box.write("go", b"")
        assert (await slow).exit_code == 0
        snapshot = await box.snapshot()
        await box.restore(snapshot)
        assert (await box.exec(["true"])).exit_code == 0


async def test_a_box_that_outlives_its_time_is_lost(supervisor):
    lost = asyncio.get_running_loop().create_future()
    taken = await take(supervisor, "mine", lost.set_result, lifetime_seconds=0.05)

    assert "lived longer than sandbox_seconds (0.05)" in (await lost).why
    async with within(60, "an answer"):
        with pytest.raises(SandboxError):
            await supervisor.collect("mine", [], 1)
    with pytest.raises(SandboxError):
        async with connect_sandbox(taken.address):
            pass


async def test_a_killed_supervisor_leaves_nothing_and_the_next_box_has_another(own_supervisor):
    lost = asyncio.get_running_loop().create_future()
    taken = await take(own_supervisor, "mine", lost.set_result)
    first = own_supervisor.process_id
    async with connect_sandbox(taken.address) as connection:
        running = asyncio.create_task(connection.box.exec(["sh", "-c", "sleep 600; true", "60", ""]))
        await until(lambda: find_by_argument(list_descendants(first), "60"))
        below = list_descendants(first)

        os.kill(first, signal.SIGKILL)

        assert "its supervisor has ended" in (await lost).why
        assert (await running).status == "gone"
    await until(lambda: not any(map(is_alive, below)))
    await until(lambda: not _has_directory(taken))
    again = await take(own_supervisor, "mine")
    assert own_supervisor.process_id != first
    async with connect_sandbox(again.address) as connection:
        assert (await connection.box.exec(["true"])).exit_code == 0


def _has_directory(taken):
    return Path(taken.address).parent.exists()


async def test_a_supervisor_that_hangs_is_killed_and_the_next_box_has_another(own_supervisor):
    lost = asyncio.get_running_loop().create_future()
    await take(own_supervisor, "mine", lost.set_result)
    first = own_supervisor.process_id
    boxes = list_descendants(first)
    os.kill(first, signal.SIGSTOP)

    own_supervisor.answer_seconds = 0.2
    with pytest.raises(SandboxError, match=r"gave no answer within 0.2 s"):
        await own_supervisor.stats()

    assert "its supervisor has ended" in (await lost).why
    await until(lambda: not any(map(is_alive, {first, *boxes})))
    own_supervisor.answer_seconds = 60.0
    await take(own_supervisor, "mine")
    assert own_supervisor.process_id != first


async def test_it_has_no_variable_of_the_worker_that_could_be_a_key(supervisor):
    assert b"planted" not in _read_variables(supervisor)


def _read_variables(supervisor):
    return Path(f"/proc/{supervisor.process_id}/environ").read_bytes()


async def test_offers_name_what_works_here(supervisor):
    offers = await supervisor.list_offers()

    assert {"sandbox:process", "isolation:process", "isolation:none"} <= set(offers)


async def test_what_is_taken_is_listed_for_people(own_supervisor):
    before = time.time()
    taken = await take(own_supervisor, "mine", task="riddle")

    (row,) = await until(lambda: [row for row in read_taken_sandboxes() if row.box == taken.facts.id])

    assert (row.task, row.owner, row.role, row.kind) == ("riddle", "mine", "agent", "process")
    after = time.time()
    assert before <= row.taken_at <= after
    await own_supervisor.close()
    assert not [row for row in read_taken_sandboxes() if row.box == taken.facts.id]


async def test_boxes_are_ready_as_expected(supervisor):
    await take(supervisor, "mine")
    other = SandboxSpec(kind="process", workdir="/other")

    await supervisor.expect([(other, 2)])

    async def are_ready():
        return (await supervisor.stats()).ready == 2

    await until(are_ready)


async def test_a_service_of_the_box_is_no_command_of_the_agent(supervisor):
    address = (await take(supervisor, "mine")).address
    async with connect_sandbox(address) as connection, connection.box.open(["cat"], is_service=True):
        alone = await supervisor.command_time("mine")
        async with connection.box.open(["cat"]):
            beside = await supervisor.command_time("mine")
        await connection.box.exec(["true"])
        after = await supervisor.command_time("mine")

    assert [one.is_running for one in (alone, beside, after)] == [False, True, False]
    assert alone.seconds == 0
