"""Fixtures that tests share: a Redis, a namespace for each test, all kinds of object store, ingest servers."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from redis import Redis

from agent_layer.cli.main import main
from agent_layer.engines.registry import Engine, EngineRegistry
from agent_layer.infra.objects.filesystem import open_objects
from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.embedded import acquire_server
from agent_layer.infra.redis.key_table import is_declared
from agent_layer.infra.redis.keys import Keys
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.recorder import open_recorder
from agent_layer.settings import Settings
from agent_layer.shipper.direct import DirectDestination
from agent_layer.shipper.ship import Shipper

from .leaks import take_leaks, watch_loops
from .ordering import Ordering
from .processes import stop_shippers
from .profiles import register_profiles
from .reruns import Reruns
from .server_makes import moved_clock, redis_programs, s3_endpoint, seaweedfs_endpoint, servers, start_redis
from .waiting import read_line, scaled, until, wait_for_exit, wait_until
from .working import dispatcher, module_stack, pace, shared_stack, stack, start_worker, worker_output, write_module

# found here by pytest
__all__ = [
    "dispatcher",
    "module_stack",
    "pace",
    "shared_stack",
    "stack",
    "start_worker",
    "worker_output",
    "write_module",
]
__all__ += ["moved_clock", "redis_programs", "s3_endpoint", "seaweedfs_endpoint", "servers", "start_redis"]

_numbers = count()

register_profiles()
watch_loops()

# A shell starts background jobs with Ctrl-C ignored, and the programs that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Without a loop, asyncio creates one when a library asks for the current loop, and no code closes that one.
asyncio.set_event_loop(None)


def pytest_configure(config: pytest.Config) -> None:
    """Let this run begin with its dearest tests, try again what the machine may have failed, and sum itself up."""
    config.pluginmanager.register(Ordering())
    config.pluginmanager.register(Reruns(config))


@pytest.fixture(autouse=True, scope="session")
def _clean_environment() -> Iterator[None]:
    """Settings of the machine that runs the tests change nothing, nor does the width that pytest-xdist sets."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("AGENT_LAYER_", "AWS_")) or name in ("COLUMNS", "LINES"):
                patch.delenv(name)
        yield


@pytest.fixture(autouse=True)
def _nothing_is_left_open() -> Iterator[None]:
    """What our code begins in a loop it ends before the loop closes (``tests/leaks.py``)."""
    take_leaks()
    yield
    assert take_leaks() == []


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """One server for all tests, started the way a user's is; it ends with this process."""
    yield from _serve_redis()


@pytest.fixture(scope="module")
def own_redis_url() -> Iterator[str]:
    """One server for a module that measures what a whole server does."""
    yield from _serve_redis()


def _serve_redis() -> Iterator[str]:
    with TemporaryDirectory(prefix="al-tests-", ignore_cleanup_errors=True) as directory:  # the server still writes
        yield f"unix://{acquire_server(Settings(dir=Path(directory), connect_seconds=scaled(30.0)))}"


@pytest.fixture
def settings(tmp_path: Path, redis_url: str) -> Iterator[Settings]:
    """A directory and a namespace of this test's own; objects lie in the directory. What it started is stopped."""
    with _new_settings(tmp_path, redis_url) as settings:
        yield settings


@pytest.fixture(scope="module")
def module_settings(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[Settings]:
    """Like ``settings``, for what all tests of a module share."""
    with _new_settings(tmp_path_factory.mktemp("module"), redis_url) as settings:
        yield settings


@contextmanager
def _new_settings(directory: Path, redis_url: str) -> Iterator[Settings]:
    settings = Settings(
        dir=directory / "agent-layer",
        redis_url=redis_url,
        namespace=f"test-{os.getpid()}-{next(_numbers)}",
        log_roll_seconds=0.05,
        ship_linger_seconds=0.2,
        flush_seconds=scaled(60.0),
        connect_seconds=scaled(2.0),
    )
    yield settings
    open_recorder(settings).close()
    stop_shippers(settings.dir)
    with open_redis(settings) as client:
        if found := list(client.scan_iter(match=f"al:{{{settings.namespace}}}:*", count=1000)):
            client.delete(*found)
    undeclared = [key for key in found if not is_declared(Keys(settings.namespace), key.decode("utf-8", "replace"))]
    assert not undeclared, f"keys that agent_layer/infra/redis/key_table.py does not declare: {undeclared[:5]}"


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
def register_engine(redis: Redis, keys: Keys) -> Callable[..., EngineRegistry]:
    """``register_engine(engine, settings, **fields)``: let gateways find a scripted engine; returns the registry."""

    def put(engine: ScriptedEngine, settings: Settings, **fields: str) -> EngineRegistry:
        registry = EngineRegistry(redis, keys, settings.gateway_seconds)
        attributes = {"run": settings.run, "location": "initial", **fields}
        registry.register(
            Engine(
                **attributes,
                url=engine.url,
                version=0,
                model=engine.model,
                logprobs_mode="processed",
                state="serving",
                epoch=0,
            ),
            engine.access_key,
        )
        return registry

    return put


@pytest.fixture
def objects_settings(request: pytest.FixtureRequest, settings: Settings, servers: tuple[str, str]) -> Settings:
    """``settings`` over a directory, then over S3 servers of two makes."""
    objects, _ = servers
    if objects == "directory":
        return settings
    endpoint = request.getfixturevalue({"moto": "s3_endpoint", "seaweedfs": "seaweedfs_endpoint"}[objects])
    url = f"s3://tests/{settings.namespace}/some/prefix"
    return settings.model_copy(update={"objects_url": url, "s3_endpoint_url": endpoint})


class Ingest:
    """``agent-layer ingest`` as a process."""

    def __init__(self, settings: Settings, port: int) -> None:
        command = [sys.executable, "-m", "agent_layer.cli", "ingest", "--port", str(port)]
        self.process = subprocess.Popen(
            command, env=os.environ | settings.environment(), stdout=subprocess.PIPE, text=True
        )
        self.exports = dict(read_line(self.process).removeprefix("export ").strip().split("=", 1) for _ in range(4))
        self.url = self.exports["AGENT_LAYER_INGEST_URL"]
        self.key = self.exports["AGENT_LAYER_INGEST_KEY"]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """With -9, and wait for its end."""
        self.process.kill()
        wait_for_exit(self.process)
        self.process.stdout.close()


@pytest.fixture
def start_ingest() -> Iterator[Callable[..., Ingest]]:
    """``start_ingest(settings, port=0)``: it ends with the test."""
    with ExitStack() as cleanup:

        def start(settings: Settings, port: int = 0) -> Ingest:
            ingest = Ingest(settings, port)
            cleanup.callback(ingest.kill)
            return ingest

        yield start


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-signed certificate of 127.0.0.1, and its key."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", str(key), "-out", str(cert)]
    try:
        request = ["openssl", "req", "-x509", "-nodes", "-days", "2"]
        subprocess.run([*request, *subject, *made], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl, which makes the certificate, is not installed")
    return cert, key


@pytest.fixture
def machine(tmp_path: Path, settings: Settings) -> Iterator[Callable[..., Settings]]:
    """``machine(ingest, name="worker", **changes)``: settings of a machine that knows an ingest server and no more."""
    machines: list[Settings] = []

    def make(ingest: Ingest, name: str = "worker", **changes: object) -> Settings:
        known = {"namespace": settings.namespace, "ingest_url": ingest.url, "ingest_key": ingest.key}
        pace = {
            "log_roll_seconds": 0.05,
            "ship_linger_seconds": 0.2,
            "flush_seconds": scaled(60.0),
        }
        machines.append(Settings(**{"dir": tmp_path / name, **known, **pace, **changes}))
        return machines[-1]

    yield make
    for one in machines:
        open_recorder(one).close()
        stop_shippers(one.dir)


@pytest.fixture
def ship_here(settings, redis, keys):
    """``ship_here(objects=None, redis=None)``: ships once in this process; returns the number of segments."""

    def ship(objects=None, other_redis=None) -> int:
        settings.log_dir.mkdir(parents=True, exist_ok=True)
        direct = DirectDestination(keys, other_redis or redis, objects or open_objects(settings))
        return Shipper(settings.log_dir, direct, threading.Event()).ship_pending()

    return ship


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a tiny model with random weights."""
    from trainer_adapter.demo.model import write_model  # noqa: PLC0415  # it takes seconds, which collecting must not

    directory = tmp_path_factory.mktemp("model")
    write_model(directory, seed=0)
    return directory


@pytest.fixture
def agent_layer(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """``agent_layer("query", "--run", "r")``: (exit status, stdout, stderr) of a command in this process."""
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["agent-layer", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return (ended.value.code, *capfd.readouterr())

    return run


@pytest.fixture(name="wait_until")
def _wait_until() -> Callable[..., object]:
    """``wait_until(condition, seconds=60)``, see there."""
    return wait_until


@pytest.fixture(name="until")
def _until() -> Callable[..., Awaitable[object]]:
    """``await until(condition, seconds=60)``, see there."""
    return until
