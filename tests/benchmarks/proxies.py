"""Proxy processes of the gateway's benchmark, and the resources they used."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from agent_layer.engines.registry import Engine, EngineRegistry
from agent_layer.infra.processes.addresses import free_port
from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.keys import Keys
from agent_layer.local.stack import ensure_api_key
from agent_layer.settings import Settings

__all__ = ["Door", "Proxy", "open_doors", "start_bare", "start_ours", "start_plain", "start_process"]

HERE = Path(__file__).parent
_START_SECONDS = 60.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Door:
    """An address for the calls of one rollout."""

    url: str
    """Up to and with /v1."""
    key: str = "none"


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """A process between clients and the engine. Another peer is one more function that yields one of these."""

    name: str
    pid: int
    new_door: Callable[[], Door]
    """Opens a rollout, where the proxy has such a thing."""

    @property
    def cpu_seconds(self) -> float:
        """What all threads of the process have used so far: the kernel's clock of another process."""
        return time.clock_gettime(~self.pid << 3 | 2)

    @property
    def resident_bytes(self) -> int:
        """Memory that it holds now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES


@contextmanager
def start_bare(directory: Path) -> Iterator[Proxy]:
    """The engine itself."""
    port = free_port()
    with start_process(
        [sys.executable, str(HERE / "canned_engine.py"), str(port)], port, directory / "engine.log"
    ) as pid:
        yield Proxy(name="engine", pid=pid, new_door=lambda: Door(f"http://127.0.0.1:{port}/v1"))


@contextmanager
def start_plain(directory: Path, engine_url: str) -> Iterator[Proxy]:
    """The plain recording proxy."""
    port = free_port()
    command = [sys.executable, str(HERE / "plain_proxy.py"), str(port), engine_url, str(directory / "plain.bin")]
    with start_process(command, port, directory / "plain.log") as pid:
        yield Proxy(name="plain", pid=pid, new_door=lambda: Door(f"http://127.0.0.1:{port}/v1"))


@contextmanager
def start_ours(directory: Path, engine_url: str) -> Iterator[Proxy]:
    """The gateway with its log, its shipper, its Redis; each rollout has a key and a record of its beginning."""
    port = free_port()
    settings = ensure_api_key(Settings(dir=directory / "ours", run="bench", gateway_url=f"http://127.0.0.1:{port}"))
    command = [sys.executable, "-m", "agent_layer.gateway", f"--port={port}"]
    with ExitStack() as cleanup:
        redis = cleanup.enter_context(open_redis(settings))
        EngineRegistry(redis, Keys(settings.namespace)).register(
            Engine(
                url=engine_url,
                run=settings.run,
                version=0,
                location="canned",
                model="policy",
                logprobs_mode="processed",
                state="serving",
                epoch=0,
            )
        )
        log = directory / "gateway.log"
        pid = cleanup.enter_context(start_process(command, port, log, settings.environment()))
        yield Proxy(name="ours", pid=pid, new_door=lambda: _open_rollout(settings))


def open_doors(proxy: Proxy, num_doors: int) -> list[Door]:
    """Open ``num_doors`` rollouts."""
    return [proxy.new_door() for _ in range(num_doors)]


@contextmanager
def start_process(
    command: Sequence[str], port: int, log: Path, variables: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Run a server until the block ends; return its process id once it listens."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, env={**os.environ, **(variables or {})}, stdout=output, stderr=output)
    try:
        _wait_listening(process, port, log)
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def _open_rollout(settings: Settings) -> Door:
    headers = {"authorization": f"Bearer {settings.api_key}"}
    answer = requests.post(f"{settings.gateway_url}/rollouts", json={"task_id": "bench"}, headers=headers, timeout=30)
    opened = answer.json()
    return Door(opened["base_url"], opened["api_key"])


def _wait_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"nothing listens on {port}; {log} ends: {log.read_text()[-800:]}") from None
            time.sleep(0.02)
        else:
            return
