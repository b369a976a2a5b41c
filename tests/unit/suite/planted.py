"""Failures of each kind, which ``test_reruns.py`` has pytest run; by its name this file is in no other run."""

import asyncio
import gc
import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import booleans

from ...browser.tabs import find_program
from ...waiting import WaitExpired, wait_until, within

FILE_OF_OURS = str(Path(__file__).parents[3] / "agent_layer" / "planted.py")


@pytest.fixture
def is_first(request) -> bool:
    """Whether the test runs for the first time; a file remembers."""
    place = Path(os.environ["PLANTED_PLACE"]) / request.node.name
    try:
        place.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@pytest.fixture(scope="module", autouse=True)
def _client():
    with CLIENT:
        yield


def test_passes():
    pass


def test_left_out():
    pytest.skip("no such server here")


def test_chromium_that_is_required_is_missing(monkeypatch):
    monkeypatch.setenv("PATH", "")
    find_program()


def test_slow_once(is_first):
    wait_until(lambda: not is_first, 0.05, "a slow machine", lambda: "the log of a slow machine")


async def test_slow_once_in_a_loop(is_first):
    never = asyncio.Event()
    if is_first:
        async with within(0.05, "a slow machine"):
            await never.wait()


@pytest.fixture
def _server(is_first):
    wait_until(lambda: not is_first, 0.05, "a server's start")


@pytest.mark.usefixtures("_server")
def test_server_starts_slowly_once():
    pass


def test_left_out_when_it_runs_again(is_first):
    if not is_first:
        pytest.skip("a skip shows nothing")
    wait_until(lambda: False, 0.05, "a server that is gone by then")


def test_stuck_for_ever():
    wait_until(lambda: False, 0.05, "what never comes")


def test_killed_and_slow_once(is_first):
    wait_until(lambda: not is_first, 0.05, "a process to be killed")


@given(booleans())
def test_property_that_waits(number):
    raise WaitExpired(f"a property found a wait without end: {number}")


def test_wrong_once(is_first):
    assert not is_first


@pytest.fixture
def _wrong_at_the_end(is_first):
    yield
    assert not is_first


@pytest.mark.usefixtures("_wrong_at_the_end")
def test_wrong_and_slow_once(is_first):
    wait_until(lambda: not is_first, 0.05)


def test_lost_update(is_first):
    """Two read the same count before either writes it."""
    count, both_read = {"is": 0}, threading.Barrier(2 if is_first else 1)

    def add() -> None:
        read = count["is"]
        both_read.wait()
        count["is"] = read + 1

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
        if not is_first:
            thread.join()
    for thread in threads:
        thread.join()
    assert count["is"] == 2


CLIENT = socket.socket()


async def test_listener_that_closes_late(is_first):
    """A connection that comes while its listener closes stays open, as long as its client does."""
    writers, has_come = [], asyncio.Event()

    def accept(_, writer) -> None:
        writers.append(writer)
        has_come.set()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    CLIENT.connect(server.sockets[0].getsockname())
    await has_come.wait()
    server.close()
    if not is_first:
        writers[0].close()


def test_task_that_nothing_awaits(is_first):
    """As if the product had begun it; a library's own task is the library's affair."""
    names: dict = {}
    file = FILE_OF_OURS if is_first else __file__
    exec(compile("async def forgotten(sleep):\n    await sleep(60)\n", file, "exec"), names)

    async def begin_and_forget() -> None:
        task = asyncio.get_running_loop().create_task(names["forgotten"](asyncio.sleep))
        await asyncio.sleep(0)
        assert not task.done()

    asyncio.run(begin_and_forget())


def test_exception_that_nothing_retrieves(is_first):
    async def fail() -> None:
        raise ValueError("forgotten")

    async def run() -> None:
        task = asyncio.get_running_loop().create_task(fail())
        await asyncio.sleep(0)
        if not is_first:
            task.exception()

    asyncio.run(run())
    gc.collect()
