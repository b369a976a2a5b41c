"""Boxes of every kind that works here. A kind in AGENT_LAYER_REQUIRE must work: its tests fail rather than skip."""

import os

import pytest
import pytest_asyncio

from envs.sandbox import Resources, SandboxSpec
from envs.sandbox.registry import list_kind_names, make_kind

REQUIRED = os.environ.get("AGENT_LAYER_REQUIRE", "").split(",")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list_kind_names())
async def kind(request):
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
