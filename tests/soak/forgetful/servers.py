"""Redis servers that forget: one whose file is cut back, one of our own directory, and a pair with a fail-over."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

from redis import Redis
from redis.exceptions import RedisError
from shim import Control, Shim
from waiting import read_line, wait_until, wait_until_ready

from agent_layer.infra.processes.addresses import free_port

__all__ = ["EmbeddedServer", "OwnServer", "ReplicatedServer", "Server"]

_RELAY = Path(__file__).parents[1] / "dispatch" / "relay.py"
_START_SECONDS = 30.0
_ILL_SECONDS = 10.0


class Server(Protocol):
    """A Redis at one address, whatever happens to it."""

    url: str | None
    """None: the embedded one."""
    control: Control

    def start(self) -> None: ...
    def cut(self, chance: random.Random) -> str:
        """Lose a part of what was not on disk, as a power loss does; return what happened."""
        ...

    def empty(self) -> str:
        """Lose everything."""
        ...

    def connect(self) -> Redis: ...
    def end(self) -> None: ...


def find_log(directory: Path) -> Path:
    """Return the append-only file that is being written."""
    parts = sorted(directory.glob("appendonlydir/*.incr.aof"), key=lambda path: path.stat().st_mtime)
    return parts[-1] if parts else directory / "appendonly.aof"


def cut_log(directory: Path, shim: Shim, chance: random.Random) -> str:
    """Cut the file back to a random place between what is on disk for certain and its end."""
    log = find_log(directory)
    size, durable = log.stat().st_size, shim.read_durable(log)
    left = chance.randint(durable, size)
    os.truncate(log, left)
    shim.sync(log)  # what is left survived
    return f"cut {size - left} of {size - durable} bytes that were not on disk"


def _answers(redis: Redis) -> bool:
    try:
        return bool(redis.ping())
    except RedisError:
        return False


class OwnServer:
    """A server program on a port of its own."""

    def __init__(
        self, program: str, directory: Path, shim: Shim, port: int, *options: str, host: str = "127.0.0.1"
    ) -> None:
        self._program, self.directory, self._shim = program, directory, shim
        self.host, self.port, self._options = host, port, options
        self.url = f"redis://{host}:{port}"
        directory.mkdir(exist_ok=True)
        self.control = Control(directory.with_suffix(".faults"))
        self._process: subprocess.Popen[bytes] | None = None
        self._well_at = 0.0

    def connect(self) -> Redis:
        return Redis(host=self.host, port=self.port, socket_timeout=5)

    def start(self) -> None:
        # fmt: off
        command = [
            self._program, "--port", str(self.port), "--bind", self.host, "--dir", str(self.directory), "--save", "",
            "--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction", *self._options,
        ]
        # fmt: on
        with self.directory.with_suffix(".log").open("ab") as log:
            environment = os.environ | self._shim.environment(self.control)
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.await_answer()

    def await_answer(self) -> None:
        assert self._process is not None
        with self.connect() as redis:
            wait_until_ready(self._process, lambda: _answers(redis), _START_SECONDS, self.directory.with_suffix(".log"))
        self._well_at = time.monotonic()

    def tend(self) -> bool:
        """Start it again if it ended, or did not answer PING for a while, as a supervisor does; return whether it did.

        Redis 7.0 needs that once a sync has failed.
        """
        if self._process is None or (self._process.poll() is None and not self._is_ill()):
            return False
        self.kill()
        self.start()
        return True

    def _is_ill(self) -> bool:
        now = time.monotonic()
        with self.connect() as redis:
            if _answers(redis):
                self._well_at = now
        return now - self._well_at > _ILL_SECONDS

    def promote(self) -> None:
        """Let a replica be a master from now on, also when it starts again."""
        with self.connect() as redis:
            redis.execute_command("REPLICAOF", "NO", "ONE")
        self._options = self._options[: self._options.index("--replicaof")]

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def cut(self, chance: random.Random) -> str:
        self.kill()
        happened = cut_log(self.directory, self._shim, chance)
        self.start()
        return happened

    def empty(self) -> str:
        self.kill()
        shutil.rmtree(self.directory)
        self.directory.mkdir()
        self.start()
        return "killed, and started with an empty directory"

    def end(self) -> None:
        if self._process is not None:
            self.kill()


class EmbeddedServer:
    """The server of an agent layer's directory; the first process that needs it starts it."""

    def __init__(self, state: Path, shim: Shim) -> None:
        self.directory, self._shim = state / "redis", shim
        self.url = None
        self.control = Control(state.with_suffix(".faults"))  # of its starter, once there is one; see Line

    def connect(self) -> Redis:
        return Redis(unix_socket_path=str(self.directory / "redis.sock"), socket_timeout=5)

    def start(self) -> None:
        """Nothing to do: the first process of the line starts it."""

    def tend(self) -> bool:
        return False

    def _kill(self) -> int:
        """Kill the server while its supervisor is stopped; return the supervisor's pid."""
        with self.connect() as redis:
            pid = int(redis.info("server")["process_id"])
        supervisor = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not _runs(pid), 10, "the end of Redis")
        return supervisor

    def cut(self, chance: random.Random) -> str:
        supervisor = self._kill()
        happened = cut_log(self.directory, self._shim, chance)
        os.kill(supervisor, signal.SIGCONT)
        return happened

    def empty(self) -> str:
        supervisor = self._kill()
        for path in (self.directory / "appendonlydir", self.directory / "appendonly.aof"):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        os.kill(supervisor, signal.SIGCONT)
        return "killed, and started without its file"

    def end(self) -> None:
        """Nothing to do: it ends with its last user."""


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Relay:
    """One address that carries to another one, and can fall silent."""

    def __init__(self, listen: int, target: int) -> None:
        command = [sys.executable, str(_RELAY), f"127.0.0.1:{listen}=127.0.0.1:{target}"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        read_line(self._process, _START_SECONDS)

    def fall_silent(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"silent\n")
        self._process.stdin.flush()
        read_line(self._process, _START_SECONDS)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class ReplicatedServer:
    """A master with a replica behind one address. A fail-over promotes the replica, which lacks the last moment."""

    def __init__(self, program: str, directory: Path, shim: Shim) -> None:
        self._program, self._directory, self._shim = program, directory, shim
        self._port, self._num = free_port(), 0
        self.url = f"redis://127.0.0.1:{self._port}"
        self._master = self._make_server()
        self._front: Relay | None = None
        self._link: Relay | None = None
        self._replica: OwnServer | None = None

    @property
    def control(self) -> Control:
        return self._master.control

    def _make_server(self, *options: str) -> OwnServer:
        self._num += 1
        directory = self._directory.with_name(f"{self._directory.name}-{self._num}")
        fast = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-timeout", "60")
        return OwnServer(self._program, directory, self._shim, free_port(), *fast, *options)

    def connect(self) -> Redis:
        return self._master.connect()

    def start(self) -> None:
        self._master.start()
        self._front = Relay(self._port, self._master.port)
        self._add_replica()

    def _add_replica(self) -> None:
        port = free_port()
        self._link = Relay(port, self._master.port)
        self._replica = self._make_server("--replicaof", "127.0.0.1", str(port))
        self._replica.start()
        with self._replica.connect() as redis:
            wait_until(lambda: redis.info("replication")["master_link_status"] == "up", _START_SECONDS, "the replica")

    def fall_behind(self) -> None:
        """Let nothing more reach the replica."""
        assert self._link is not None
        self._link.fall_silent()

    def promote(self) -> str:
        """Kill the master, and let the replica take its place."""
        assert self._link is not None
        assert self._front is not None
        assert self._replica is not None
        self._master.kill()
        self._link.end()
        self._front.end()
        self._replica.promote()
        self._master = self._replica
        self._front = Relay(self._port, self._master.port)
        self._add_replica()
        return "master killed, replica promoted"

    def tend(self) -> bool:
        return self._master.tend()

    def cut(self, chance: random.Random) -> str:
        return self._master.cut(chance)

    def empty(self) -> str:
        return self._master.empty()

    def end(self) -> None:
        for relay in (self._front, self._link):
            if relay is not None:
                relay.end()
        for server in (self._master, self._replica):
            if server is not None:
                server.end()
