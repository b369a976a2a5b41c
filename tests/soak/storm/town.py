"""The storm's processes: Redis, S3, engine, gateway, agents, and their shipper."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import boto3
from redis import Redis
from redis.exceptions import RedisError

from agent_layer.engines.join import register_engine
from agent_layer.infra.processes.addresses import free_port, is_responding
from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.embedded import find_redis_server
from agent_layer.recorder.quota import Quota
from agent_layer.recorder.shipping import ensure_shipper
from agent_layer.settings import Settings

HERE = Path(__file__).parent
_START_SECONDS = 60.0


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: expected within {seconds:g} s, found otherwise; the town's logs tell more")
        time.sleep(0.02)


@dataclass
class Town:
    """Everything by name; each process can be killed, stopped and started again."""

    directory: Path
    seed: int
    is_s3: bool
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])

    def __post_init__(self) -> None:
        self.gateway_port, self.engine_port, self.s3_port = free_port(), free_port(), free_port()
        self.engine_url = f"http://127.0.0.1:{self.engine_port}"
        socket = self.directory / "redis.sock"
        self.settings = Settings(
            dir=self.directory / "state",
            redis_url=f"unix://{socket}",
            objects_url="s3://storm/prefix" if self.is_s3 else None,
            s3_endpoint_url=f"http://127.0.0.1:{self.s3_port}" if self.is_s3 else None,
            namespace="storm",
            run="storm",
            gateway_url=f"http://127.0.0.1:{self.gateway_port}",
            api_key=f"ok-{secrets.token_urlsafe(12)}",
            vllm_urls=self.engine_url,
            log_roll_seconds=0.2,
            log_quota_bytes=250_000,
            log_wait_seconds=1.5,
            ship_linger_seconds=1.0,
            connect_seconds=2.0,
            retry_seconds=3.0,
            gateway_seconds=2.0,
            close_seconds=0.5,
            seal_seconds=6.0,
            request_seconds=20.0,
        )

    def build(self) -> None:
        """Start everything but the agents."""
        self.start_redis()
        if self.is_s3:
            os.environ |= {"AWS_ACCESS_KEY_ID": "t", "AWS_SECRET_ACCESS_KEY": "t", "AWS_DEFAULT_REGION": "us-east-1"}
            self._start("s3", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.s3_port))
            wait_until(lambda: is_responding(f"{self.settings.s3_endpoint_url}/moto-api"), _START_SECONDS, "S3")
            boto3.client("s3", endpoint_url=self.settings.s3_endpoint_url).create_bucket(Bucket="storm")
        self._start("engine", str(HERE / "engine.py"), str(self.engine_port), str(self.directory / "engine.book"))
        wait_until(lambda: is_responding(f"{self.engine_url}/health"), _START_SECONDS, "engine")
        with open_redis(self.settings) as redis:
            register_engine(self.settings, redis, self.engine_url)
        self.start_gateway()

    def start_redis(self) -> None:
        # fmt: off
        command = [
            find_redis_server(self.settings), "--port", "0", "--unixsocket", str(self.directory / "redis.sock"),
            "--dir", str(self.directory), "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
        ]
        # fmt: on
        self._run("redis", command)
        wait_until(self.redis_answers, _START_SECONDS, "Redis")

    def redis_answers(self) -> bool:
        try:
            with Redis(unix_socket_path=str(self.directory / "redis.sock"), socket_timeout=2) as redis:
                return bool(redis.ping())
        except RedisError:
            return False

    def start_gateway(self) -> None:
        self._start("gateway", "-m", "agent_layer.gateway", "--port", str(self.gateway_port))
        wait_until(lambda: is_responding(f"{self.settings.gateway_url}/health"), _START_SECONDS, "gateway")

    def start_agents(self) -> None:
        self._start("agents", str(HERE / "agents.py"), str(self.directory), str(self.seed), self.engine_url)

    def agents(self) -> list[int]:
        """Pids of the agents that play right now."""
        parent = self.processes["agents"].pid
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except OSError:
            return []
        return [int(pid) for pid in children if b"agents.py" in _command_of(int(pid))]

    def shipper(self) -> int | None:
        """Pid of the shipper that runs right now."""
        try:
            pid = int((self.settings.log_dir / "shipper.lock").read_text() or 0)
        except (OSError, ValueError):
            return None
        return pid if pid and b"agent_layer.shipper" in _command_of(pid) else None

    def is_log_full(self) -> bool:
        """Whether writers have to wait for the shipper."""
        return not Quota(self.settings.log_dir, self.settings.log_quota_bytes).has_room()

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def send(self, pid: int, number: signal.Signals) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return

    def come_to_rest(self, seconds: float) -> None:
        """Let the agents end, and everything that was recorded be shipped."""
        (self.directory / "stop").touch()
        try:
            wait_until(lambda: self.processes["agents"].poll() is not None, seconds, "agents")
        except TimeoutError:
            for pid in self.agents():
                self.send(pid, signal.SIGUSR1)  # each writes its stack into agents.log
            raise
        self.processes["gateway"].terminate()
        self.processes["gateway"].wait(seconds)
        wait_until(self._is_shipped, seconds, "shipping")

    def _is_shipped(self) -> bool:
        ensure_shipper(self.settings)
        names = [path.name for path in self.settings.log_dir.iterdir()]
        return not any(name.endswith(".open") or (name.endswith(".log") and "-" in name) for name in names)

    def end(self) -> None:
        if pid := self.shipper():
            self.send(pid, signal.SIGCONT)
            self.send(pid, signal.SIGTERM)
        for pid in self.agents() if "agents" in self.processes else []:
            self.send(pid, signal.SIGKILL)
        for process in reversed(self.processes.values()):
            process.kill()
            process.wait()

    def _start(self, name: str, *arguments: str) -> None:
        self._run(name, [sys.executable, *arguments])

    def _run(self, name: str, command: list[str]) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            environment = os.environ | self.settings.environment()
            self.processes[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=HERE)


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
