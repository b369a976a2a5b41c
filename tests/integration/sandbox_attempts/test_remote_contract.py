"""What every kind promises, a client of the supervisor gets: the contract suite, over a connection."""

import pytest
import pytest_asyncio

from envs.sandbox import Resources, SandboxSpec, connect_sandbox, make_kind
from envs.sandbox.supervisor import SupervisorHandle

from ..sandbox import test_contract

pytestmark = pytest.mark.asyncio(loop_scope="module")

_OTHERWISE = {
    "test_a_kind_says_what_it_stops",  # a client does not see the kind
    "test_closing_a_box_ends_what_runs_in_it",  # the pool replaces it; see test_supervisor
}
for _name, _test in vars(test_contract).items():
    if _name.startswith("test_") and _name not in _OTHERWISE:
        globals()[_name] = _test


class RemoteKind:
    """Boxes as a client of the supervisor gets them."""

    def __init__(self, name, connection):
        self.name = name
        self._connection = connection

    async def start(self, spec, *, owner):
        del owner
        return await self._connection.take(spec)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kind():
    made = make_kind("namespace")
    works = (await made.probe()).works
    await made.close()
    supervisor = SupervisorHandle()
    address = await supervisor.allow_scoring("test", "t", None, most_boxes=64)
    async with connect_sandbox(address) as connection:
        yield RemoteKind("namespace" if works else "process", connection)
    await supervisor.close()


@pytest.fixture
def spec(kind):
    return SandboxSpec(kind=kind.name, resources=Resources(memory_mb=256, disk_mb=32, processes=32, files=512))


@pytest_asyncio.fixture(loop_scope="module")
async def box(kind, spec):
    made = await kind.start(spec, owner="test")
    yield made
    await made.close()
