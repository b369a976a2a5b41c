"""Boxes of every kind that works here. A kind in AGENT_LAYER_REQUIRE must work: its tests fail rather than skip."""

import os

import pytest
import pytest_asyncio

from envs.sandbox import Resources, SandboxSpec
from envs.sandbox.registry import list_kind_names, make_kind

from .docker_daemon import run_docker_daemon

REQUIRED = os.environ.get("AGENT_LAYER_REQUIRE", "").split(",")


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


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list_kind_names())
async def kind(request):
    if request.param == "docker":
        request.getfixturevalue("docker_daemon")
    made = make_kind(request.param)
    support = await made.probe()
    if not support.works:
        await made.close()
        (pytest.fail if request.param in REQUIRED else pytest.skip)(f"kind {request.param}: {support.reason}")
    yield made
    await made.close()


@pytest.fixture
def spec(kind):
    return SandboxSpec(kind=kind.name, resources=Resources(memory_mb=256, disk_mb=32, processes=32, files=512))


@pytest_asyncio.fixture(loop_scope="module")
async def box(kind, spec):
    made = await kind.start(spec, owner="test")
    yield made
    await made.close()
