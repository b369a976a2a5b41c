"""What soaks deploy in processes of their own: Redis, a shipper, and what each soak adds."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # what all tests share

from redis import Redis
from redis.exceptions import RedisError
from waiting import wait_until_ready

from agent_layer.infra.redis.programs import find_redis_server
from agent_layer.recorder.shipping import ensure_shipper
from agent_layer.settings import Settings

__all__ = ["Deployment", "list_children", "read_command"]

_START_SECONDS = 60.0


@dataclass
class Deployment:
    """Processes by name; each can be killed, frozen and started again."""

    directory: Path
    settings: Settings
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])

    @property
    def redis_socket(self) -> Path:
        return self.directory / "redis.sock"

    def start(self, name: str, command: list[str], variables: Mapping[str, str] | None = None) -> None:
        environment = {**os.environ, **self.settings.environment(), **(variables or {})}
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, cwd=self.directory
            )

    def start_redis(self) -> None:
        # fmt: off
        command = [
            find_redis_server(self.settings).path, "--port", "0", "--unixsocket", str(self.redis_socket),
            "--dir", str(self.directory), "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
        ]
        # fmt: on
        self.start("redis", command)
        self.await_start("redis", self.redis_answers)

    def await_start(self, name: str, is_ready: Callable[[], object]) -> None:
        wait_until_ready(self.processes[name], is_ready, _START_SECONDS, self.log(name))

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def redis_answers(self) -> bool:
        try:
            with Redis(unix_socket_path=str(self.redis_socket), socket_timeout=2) as redis:
                return bool(redis.ping())  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        except RedisError:
            return False

    def shipper(self) -> int | None:
        """Return the pid of the shipper that runs right now."""
        try:
            pid = int((self.settings.log_dir / "shipper.lock").read_text() or 0)
        except (OSError, ValueError):
            return None
        return pid if pid and b"agent_layer.shipper" in read_command(pid) else None

    def has_shipped(self) -> bool:
        """Whether no log is left; starts a shipper if there is none."""
        ensure_shipper(self.settings)
        names = [path.name for path in self.settings.log_dir.iterdir()]
        return not any(name.endswith(".open") or (name.endswith(".log") and "-" in name) for name in names)

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def send(self, pid: int, number: signal.Signals) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return

    def end(self) -> None:
        if pid := self.shipper():
            self.send(pid, signal.SIGCONT)
            self.send(pid, signal.SIGTERM)
        for process in reversed(self.processes.values()):
            process.kill()
            process.wait()


def list_children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def read_command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
