"""The town: Redis, eight nests of workers and a shipper, each a process that can be killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from asking import RUN
from redis import Redis
from redis.exceptions import RedisError

from agent_layer.dispatcher import connect
from agent_layer.infra.redis.embedded import find_redis_server
from agent_layer.recorder.shipping import ensure_shipper
from agent_layer.settings import Settings

from ...queues import Queue, queue_of

__all__ = ["Town", "wait_until"]

HERE = Path(__file__).parent
NUM_WORKERS = 8
_START_SECONDS = 60.0
_SHOWN_CHARACTERS = 1500


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: expected within {seconds:g} s, found otherwise; the town's logs tell more")
        time.sleep(0.02)


@dataclass
class Town:
    """Everything by name."""

    directory: Path
    seed: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])

    def __post_init__(self) -> None:
        self._socket = self.directory / "redis.sock"
        self.settings = Settings(
            dir=self.directory / "state",
            redis_url=f"unix://{self._socket}",
            namespace=RUN,
            run=RUN,
            lease_seconds=2.0,
            heartbeat_seconds=0.5,
            retry_base_seconds=0.05,
            max_attempts=1000,  # frequent kills must not make a rollout a dead letter
            stop_failure_rate=1.0,  # nor stop the run
            log_roll_seconds=0.1,
            ship_linger_seconds=30.0,
        )

    def start_redis(self) -> None:
        # fmt: off
        command = [
            find_redis_server(self.settings), "--port", "0", "--unixsocket", str(self._socket),
            "--dir", str(self.directory), "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
        ]
        # fmt: on
        self._run("redis", command)
        wait_until(self.redis_answers, _START_SECONDS, "Redis")

    def redis_answers(self) -> bool:
        try:
            with Redis(unix_socket_path=str(self._socket), socket_timeout=2) as redis:
                return bool(redis.ping())  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        except RedisError:
            return False

    def start_workers(self) -> None:
        for number in range(NUM_WORKERS):
            arguments = [str(HERE / "nest.py"), str(self.directory), str(number), str(self.seed)]
            self._run(f"nest-{number}", [sys.executable, *arguments])

    def start_consumer(self) -> None:
        self._run("consumer", [sys.executable, str(HERE / "consumer.py"), str(self.directory), RUN])

    def workers(self) -> list[int]:
        """Pids of the workers that live right now."""
        return [pid for number in range(NUM_WORKERS) for pid in _children_of(self.processes[f"nest-{number}"].pid)]

    def shipper(self) -> int | None:
        """Pid of the shipper that runs right now."""
        try:
            pid = int((self.settings.log_dir / "shipper.lock").read_text() or 0)
        except (OSError, ValueError):
            return None
        return pid if pid and b"agent_layer.shipper" in _command_of(pid) else None

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def send(self, pid: int, number: signal.Signals) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return

    def come_to_rest(self, seconds: float) -> None:
        """Let the workers end, everything that was recorded and decided be shipped, and every group be consumed."""
        (self.directory / "stop").touch()
        nests = [process for name, process in self.processes.items() if name.startswith("nest")]
        wait_until(lambda: all(nest.poll() is not None for nest in nests), seconds, "workers")
        queue = queue_of(connect(self.settings))
        wait_until(lambda: self._is_shipped(queue), seconds, "shipping")
        (self.directory / "shipped").touch()
        wait_until(lambda: self.processes["consumer"].poll() is not None, seconds, "consumer")

    def _is_shipped(self, queue: Queue) -> bool:
        """Whether everything is stored, also decisions after the leases of cancelled rollouts expired."""
        ensure_shipper(self.settings)
        names = [path.name for path in self.settings.log_dir.iterdir()]
        if any(name.endswith(".open") or (name.endswith(".log") and "-" in name) for name in names):
            return False
        queue.reap()
        return not queue.redis.exists(queue.keys.queue("parting")) and queue.redis.xlen(queue.keys.outbox) == 0

    def complaints(self) -> list[str]:
        """Return the output of workers and consumer, which print only on failure."""
        logs = [self.directory / f"{name}.log" for name in self.processes if name != "redis"]
        return [f"{log.name}: {said}" for log in logs if (said := log.read_text()[-_SHOWN_CHARACTERS:])]

    def end(self) -> None:
        if pid := self.shipper():
            self.send(pid, signal.SIGTERM)
        for pid in self.workers() if "nest-0" in self.processes else []:
            self.send(pid, signal.SIGKILL)
        for process in reversed(self.processes.values()):
            process.kill()
            process.wait()

    def _run(self, name: str, command: list[str]) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            environment = os.environ | self.settings.environment()
            self.processes[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=HERE)


def _children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
