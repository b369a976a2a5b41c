"""Boxes of every kind that works here. A kind in AGENT_LAYER_REQUIRE must work: its tests fail rather than skip."""

import os
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from envs.sandbox import Resources, SandboxSpec, SupervisorHandle, connect_sandbox
from envs.sandbox.registry import list_kind_names, make_kind

from ...boxes import end_without
from .docker_daemon import run_docker_daemon
from .root_directory import make_root_directory


@pytest.fixture(scope="session")
def docker_daemon():
    """Address of a daemon that kind docker uses; None: this machine has none, and none could be started."""
    if "DOCKER_HOST" in os.environ:
        yield os.environ["DOCKER_HOST"]
        return
    with run_docker_daemon() as address:
        if address is not None:
            os.environ["DOCKER_HOST"] = address
        yield address
        os.environ.pop("DOCKER_HOST", None)


@pytest.fixture(scope="session")
def root_directory(tmp_path_factory):
    """A root directory for boxes, which no test changes."""
    return make_root_directory(tmp_path_factory.mktemp("root"))


@pytest.fixture
def open_folder():
    """A folder that users without rights may enter; each run of pytest closes those of ``tmp_path`` again."""
    with tempfile.TemporaryDirectory(prefix="agent-layer-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@asynccontextmanager
async def open_kind(name, request):
    """Yield a kind; a test of one that does not work here is skipped, unless it must."""
    if name == "docker":
        request.getfixturevalue("docker_daemon")
    made = make_kind(name)
    try:
        if not (support := await made.probe()).works:
            end_without(f"kind {name}: {support.reason}", name)
        yield made
    finally:
        await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list_kind_names())
async def kind(request):
    async with open_kind(request.param, request) as made:
        yield made


@pytest.fixture(scope="module")
def spec(kind):
    return SandboxSpec(kind=kind.name, resources=Resources(memory_mb=256, disk_mb=32, processes=32, files=512))


@pytest_asyncio.fixture(loop_scope="module")
async def fresh_box(kind, spec):
    """A box that nothing has run in."""
    made = await kind.start(spec, owner="test")
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(kind, spec):
    """One box for all tests of a module that leave nothing in it which another would find."""
    made = await kind.start(spec, owner="test")
    yield made
    await made.close()


class _SupervisedKind:
    """Boxes as a client of the supervisor gets them."""

    def __init__(self, name, connection):
        self.name = name
        self._connection = connection

    async def start(self, spec, *, owner):
        del owner
        return await self._connection.take(spec)


@asynccontextmanager
async def open_supervised():
    """A supervisor's boxes, of the best kind that works here."""
    made = make_kind("namespace")
    works = (await made.probe()).works
    await made.close()
    supervisor = SupervisorHandle()
    address = await supervisor.allow_scoring("test", "t", None, max_boxes=64)
    async with connect_sandbox(address) as connection:
        yield _SupervisedKind("namespace" if works else "process", connection)
    await supervisor.close()
