"""Kind docker beyond the contract: images by name, containers that a dead worker left, daemons that are not there."""

import asyncio
import http.client
import io
import json
import tarfile
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from agent_layer.errors import BadInputError, SandboxError
from envs.sandbox import SandboxSpec
from envs.sandbox.registry import make_kind

from ...boxes import REQUIRED, end_without
from ...waiting import until
from .docker_daemon import ask
from .root_directory import MARK

pytestmark = pytest.mark.asyncio(loop_scope="module")
IMAGE = "agent-layer-test:1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def docker(docker_daemon):
    assert docker_daemon or "docker" not in REQUIRED
    made = make_kind("docker")
    support = await made.probe()
    if not support.works:
        await made.close()
        end_without(support.reason, "docker")
    yield made
    await made.close()


@pytest.fixture(scope="module")
def image(docker, docker_daemon, root_directory):
    """A root directory of this machine's programs, imported without a registry."""
    assert docker.name == "docker"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(root_directory, ".")
    path = "/images/create?fromSrc=-&repo=agent-layer-test&tag=1&changes=VOLUME%20/srv/cache"
    status, body = ask(docker_daemon, "POST", path, buffer.getvalue(), "application/x-tar")
    assert status == http.client.OK, body
    yield IMAGE
    ask(docker_daemon, "DELETE", f"/images/{IMAGE}?force=1")


def list_left(address):
    _, containers = ask(address, "GET", '/containers/json?all=1&filters={"label":["agent-layer.owner"]}')
    _, volumes = ask(address, "GET", "/volumes")
    return json.loads(containers), json.loads(volumes)["Volumes"]


async def test_an_image_by_name_has_its_own_files_and_python(docker, docker_daemon, image):
    box = await docker.start(SandboxSpec(kind="docker", image=image), owner="test")
    try:
        assert await box.read("/srv/data/mark") == MARK.encode()
        result = await box.exec(["python3", "-c", "import os; print(sorted(os.listdir('/srv'))); open('/srv/x', 'w')"])
        assert result.stdout == b"['cache', 'data']\n"
        assert b"Read-only file system" in result.stderr
        await box.write("own", b"1")
        other = await box.fork()
        assert await other.read("own") == b"1"
        await other.close()
    finally:
        await box.close()

    assert list_left(docker_daemon) == ([], [])


async def test_an_image_that_is_missing_is_named(docker):
    with pytest.raises(BadInputError, match="no image 'no-such:1'; run 'docker pull no-such:1'"):
        await docker.start(SandboxSpec(kind="docker", image="no-such:1"), owner="test")


async def test_an_image_without_python_is_refused_and_leaves_nothing(docker, docker_daemon):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("file"))
    path = "/images/create?fromSrc=-&repo=agent-layer-empty&tag=1"
    ask(docker_daemon, "POST", path, buffer.getvalue(), "application/x-tar")

    with pytest.raises(BadInputError, match="the image has no python3"):
        await docker.start(SandboxSpec(kind="docker", image="agent-layer-empty:1"), owner="test")

    assert list_left(docker_daemon) == ([], [])


@pytest.mark.usefixtures("docker")
async def test_a_container_of_a_dead_worker_is_removed_by_the_next(docker_daemon):
    labels = {"agent-layer.owner": f"{(await read_boot())}.999999999.1"}
    name = json.loads(ask(docker_daemon, "GET", "/images/json")[1])[0]["Id"]
    config = {"Image": name, "Cmd": ["python3"], "Labels": labels}
    status, body = ask(docker_daemon, "POST", "/containers/create", json.dumps(config))
    assert status == http.client.CREATED, body

    next_one = make_kind("docker")
    try:
        await next_one.start(SandboxSpec(kind="docker"), owner="test")
        assert [row["Labels"].get("agent-layer.lease") for row in list_left(docker_daemon)[0]] == ["test"]
    finally:
        await next_one.close()
    await until(lambda: list_left(docker_daemon) == ([], []))


async def read_boot():
    return (await asyncio.to_thread(Path("/proc/sys/kernel/random/boot_id").read_text)).strip()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("unix:///no/such/socket", "no Docker daemon answers at /no/such/socket"),
        ("tcp://127.0.0.1:1", "expected DOCKER_HOST as unix:///path"),
    ],
)
async def test_a_daemon_that_is_not_there_is_a_reason(monkeypatch, address, words):
    monkeypatch.setenv("DOCKER_HOST", address)
    kind = make_kind("docker")
    try:
        support = await kind.probe()
        with pytest.raises(SandboxError):
            await kind.start(msgspec.structs.replace(SandboxSpec(), kind="docker"), owner="test")
    finally:
        await kind.close()

    assert not support.works
    assert words in support.reason
