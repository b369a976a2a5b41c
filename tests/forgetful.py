"""A Redis that forgets: its append-only file is cut back, or a replica that lags takes its place.

    server = ForgetfulRedis(program, directory)      # any make; its URL stays the same after each restart
    before = server.mark()
    ...                                              # what is to be forgotten
    server.forget_since(before)                      # killed, cut back, started again: 0.1 s

A cut to ``mark()`` also forgets what was synced since, as a promoted replica does: nothing may be decided otherwise.
A cut to ``synced_end()`` is a power loss: what our processes waited for stays, and no promise may break.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from redis import Redis
from redis.exceptions import RedisError

from agent_layer.infra.processes.addresses import free_port
from agent_layer.infra.processes.reaper import die_with_parent

from .waiting import wait_for_exit, wait_until

_SYNC_MARK = re.compile(rb":synced\r\n\$\d+\r\n[^\r]*\r\n")
"""End of the write that ``infra.redis.durability`` makes before each sync."""


class AofPosition(NamedTuple):
    """A place in the append-only file."""

    file: Path
    size_bytes: int


class ForgetfulRedis:
    """One server, however often it is restarted.

    Args:
        program: redis-server or valkey-server.
        directory: of its data; the socket is inside.
        options: as on its command line.
        variables: of its environment, beside ours.
    """

    def __init__(
        self, program: str, directory: Path, options: Sequence[str] = (), variables: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self._environment = {**os.environ, **(variables or {})}
        self.socket = directory / "redis.sock"
        self.url = f"unix://{self.socket}"
        self._command = [
            *(program, "--port", "0", "--dir", str(directory), "--unixsocket", str(self.socket), "--save", ""),
            *("--appendonly", "yes", "--appendfsync", "everysec", "--repl-diskless-sync-delay", "0", *options),
        ]
        self._replicas: list[subprocess.Popen[bytes]] = []
        self._server = self._start(self._command, self.socket)

    def mark(self) -> AofPosition:
        """Return the end of the append-only file once all that was answered is in it."""
        with Redis.from_url(self.url) as redis:
            wait_until(lambda: int(redis.info("persistence")["aof_buffer_length"]) == 0)
        file = self._aof()
        return AofPosition(file, file.stat().st_size)

    def synced_end(self) -> AofPosition:
        """Return the place behind the newest write that one of our processes had on disk."""
        file = self._aof()
        ends = [found.end() for found in _SYNC_MARK.finditer(file.read_bytes())]
        return AofPosition(file, ends[-1] if ends else 0)

    def forget_since(self, position: AofPosition) -> None:
        """Kill the server, cut its file back, and start it again."""
        self.kill()
        os.truncate(position.file, position.size_bytes)
        self.start()

    def lose_power(self) -> None:
        """Kill the server and forget all that no process waited for."""
        self.kill()
        position = self.synced_end()
        os.truncate(position.file, position.size_bytes)
        self.start()

    def kill(self) -> None:
        """Kill the server with -9."""
        _kill(self._server)

    def start(self) -> None:
        """Start the server again, from what its file holds."""
        self._server = self._start(self._command, self.socket)

    def detach_replica(self) -> "Promotable":
        """Return a replica that holds what the server holds now, and receives nothing more."""
        directory = self.directory / f"replica-{len(self._replicas)}"
        directory.mkdir()
        path = directory / "redis.sock"
        command = [str(path) if part == str(self.socket) else part for part in self._command]
        command[command.index("--dir") + 1] = str(directory)
        with Redis.from_url(self.url) as redis:
            port = int(redis.config_get("port")["port"])
            if not port:  # replicas connect over TCP only
                port = free_port()
                redis.config_set("port", port)
            process = self._start([*command, "--replicaof", "127.0.0.1", str(port)], path)
            self._replicas.append(process)
            with Redis(unix_socket_path=str(path)) as replica:
                wait_until(lambda: replica.info("replication")["master_link_status"] == "up")
                redis.set("replica:seen", time.time_ns())
                wait_until(lambda: replica.get("replica:seen") == redis.get("replica:seen"))
                replica.replicaof("NO", "ONE")
        return Promotable(path, process)

    def promote(self, replica: "Promotable") -> None:
        """Kill the server; from now on its address leads to the replica."""
        self.kill()
        replica.socket.rename(self.socket)
        self._server = replica.process

    def close(self) -> None:
        """End everything."""
        for process in [self._server, *self._replicas]:
            _kill(process)

    def _aof(self) -> Path:
        """Return the file that grows: the only one of Redis 6, the last increment from 7 on."""
        manifests = list(self.directory.glob("appendonlydir/*.manifest"))
        if not manifests:
            return self.directory / "appendonly.aof"
        lines = [line.split() for line in manifests[0].read_text().splitlines()]
        return manifests[0].parent / [line[1] for line in lines if line[-1] == "i"][-1]

    def _start(self, command: Sequence[str], path: Path) -> subprocess.Popen[bytes]:
        path.unlink(missing_ok=True)
        log = path.parent / "log"
        with log.open("ab") as output:
            dies = partial(die_with_parent, os.getpid(), signal.SIGKILL)
            options = {"stdout": output, "stderr": output, "env": self._environment}
            server = subprocess.Popen(command, preexec_fn=dies, **options)  # noqa: PLW1509  # no thread of ours runs yet
        wait_until(lambda: _is_ready(path), log=log)
        return server


class Promotable(NamedTuple):
    """A replica that may take the server's place."""

    socket: Path
    process: subprocess.Popen[bytes]


def _is_ready(path: Path) -> bool:
    try:
        with Redis(unix_socket_path=str(path)) as redis:
            return bool(redis.ping())
    except (RedisError, OSError):
        return False


def _kill(server: subprocess.Popen[bytes]) -> None:
    server.kill()
    wait_for_exit(server)
