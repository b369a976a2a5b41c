"""Fixtures of fault tests: a client of a gateway, a way to kill one, one round of shipping."""

import json
import os
import signal
import socket
import threading
import urllib.request
from contextlib import suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from urllib.error import HTTPError

import pytest
from redis import Redis

from agent_layer.infra.processes.addresses import free_port
from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.embedded import acquire_server
from agent_layer.recorder import open_recorder
from agent_layer.recorder.logfile import CLOSED, OPEN
from agent_layer.settings import Settings

from ...processes import find_pid
from ...waiting import scaled, wait_for_exit, wait_until
from ...watching import WatchedRedis


def post(url, body, key, headers=None, seconds=30):
    """Send JSON and read JSON; a refusal is an HTTPError. ``seconds`` is the limit on a calm machine."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=scaled(seconds)) as reply:
            return json.load(reply)
    except HTTPError as refused:
        with refused:
            body = BytesIO(refused.read())
        raise HTTPError(url, refused.code, refused.reason, refused.headers, body) from None


def await_shipped(settings) -> None:
    """Wait until no log is left; until then, their records appear in any order.

    Who was killed may have come to no shipper: the next writer sees to one.
    """
    open_recorder(settings).attend()
    logs = settings.log_dir
    wait_until(
        lambda: not any(path for ending in (OPEN, CLOSED) for path in logs.glob(f"*-*{ending}")),
        log=logs / "shipper.log",
    )


class Client:
    """An agent's view of a stack, and the operator's."""

    def __init__(self, stack):
        self.gateway, self._key = stack.settings.gateway_url, stack.settings.api_key

    def open(self, **fields):
        return post(f"{self.gateway}/rollouts", {"task_id": "t1", "run": "r", **fields}, self._key)

    def ask(self, opened, text, headers=None, seconds=30, **fields):
        body = {"messages": [{"role": "user", "content": text}], **fields}
        return post(f"{opened['base_url']}/chat/completions", body, opened["api_key"], headers, seconds)

    def end(self, opened, **fields):
        return post(f"{self.gateway}/rollouts/{opened['rollout_id']}/end", fields, self._key)


@pytest.fixture(name="make_client")
def _make_client():
    """``make_client(stack)``."""
    return Client


@pytest.fixture
def kill():
    """``kill(leashed)``: with -9, and wait for its end."""

    def kill_it(leashed) -> None:
        os.kill(find_pid(leashed), signal.SIGKILL)
        wait_for_exit(leashed.process)

    return kill_it


@pytest.fixture
def shipper_output():
    """``shipper_output(settings)``: what the shippers of that directory wrote; nothing before the first started."""

    def read(settings) -> str:
        message = settings.log_dir / "shipper.log"
        return message.read_text() if message.exists() else ""

    return read


@pytest.fixture(name="free_port")
def _free_port() -> int:
    return free_port()


class OwnRedis:
    """A Redis server that a test may spoil."""

    def __init__(self, directory: Path) -> None:
        self.url = f"unix://{acquire_server(Settings(dir=directory, connect_seconds=scaled(30.0)))}"
        with Redis.from_url(self.url) as redis:
            self._pid = int(redis.info("server")["process_id"])

    def send(self, number: signal.Signals) -> None:
        os.kill(self._pid, number)

    def mend(self) -> None:
        self.send(signal.SIGCONT)
        with Redis.from_url(self.url) as redis:
            for command in ("CLIENT UNPAUSE", "REPLICAOF NO ONE", "CONFIG SET maxmemory 0"):
                redis.execute_command(*command.split())


@pytest.fixture(scope="session")
def fault_redis(tmp_path_factory):
    """One server for all tests that spoil, stop or measure theirs: none but its test uses it meanwhile."""
    return OwnRedis(tmp_path_factory.mktemp("redis"))


@pytest.fixture
def own_redis(fault_redis):
    """``fault_redis`` as it was at first, however a test leaves it."""
    yield fault_redis
    fault_redis.mend()


@pytest.fixture
def watched(own_redis, settings):
    """A client of ``own_redis`` that measures it."""
    with open_redis(settings.model_copy(update={"redis_url": own_redis.url})) as redis:
        yield WatchedRedis(connection_pool=redis.connection_pool)


REFUSALS = {
    "is broken": (500, "InternalError"),
    "slows down": (503, "SlowDown"),
    "is full": (507, "XMinioStorageFull"),
    "has forgotten who we are": (400, "ExpiredToken"),
    "says it is corrupt": (400, "BadDigest"),
}


class Proxy:
    """Stands before a server; while ``mood`` is set, no request gets through, or not as it was."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.mood: str | None = None
        self.heads: list[bytes] = []
        """How each connection began."""
        self.num_spoiled = 0
        self.num_spoils_left: int | None = None
        """Of the mood; None: no end."""
        self.spoils_after = b""
        """What a request must contain so that its answer is lost."""
        self._is_requested = False
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._stop = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._stop.set()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            first = client.recv(65536)
            self.heads.append(first)
            if self.mood in ("garbles", "loses") or not self._spoils():
                self._forward(client, first)
            elif self.mood == "hangs":
                self._stop.wait()
            elif self.mood == "resets":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            else:
                status, code = REFUSALS[self.mood]
                body = f"<Error><Code>{code}</Code><Message>Not now.</Message></Error>"
                head = f"HTTP/1.1 {status} No\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                client.sendall((head + body).encode())
                client.shutdown(socket.SHUT_WR)
                with suppress(OSError):  # unread bytes would reset the connection and lose the answer
                    while client.recv(65536):
                        pass

    def _spoils(self) -> bool:
        if self.mood is None or self.num_spoils_left == 0:
            return False
        self.num_spoiled += 1
        self.num_spoils_left = self.num_spoils_left and self.num_spoils_left - 1
        return True

    def _forward(self, client: socket.socket, first: bytes) -> None:
        with socket.create_connection(self.target) as server:
            server.sendall(self._requested(first))
            back = threading.Thread(target=_pump, args=(server, client, partial(self._answered, client)), daemon=True)
            back.start()
            _pump(client, server, self._requested)
            back.join()

    def _passed(self, content: bytes) -> bytes:
        is_spoilt = self.mood == "garbles" and b"payload" in content and self._spoils()
        return content.replace(b"payload", b"PAYLOAD") if is_spoilt else content

    def _requested(self, content: bytes) -> bytes:
        self._is_requested = self.spoils_after in content
        return self._passed(content)

    def _answered(self, client: socket.socket, content: bytes) -> bytes:
        if self.mood == "loses" and self._is_requested and self._spoils():
            client.shutdown(socket.SHUT_RDWR)
            raise ConnectionError
        return self._passed(content)


def _pump(source: socket.socket, drain: socket.socket, passed) -> None:
    try:
        while content := source.recv(65536):
            drain.sendall(passed(content))
        drain.shutdown(socket.SHUT_WR)
    except OSError:
        return


@pytest.fixture(name="make_proxy")
def _make_proxy():
    """``make_proxy((host, port))``: a proxy before that server."""
    made: list[Proxy] = []

    def make(target: tuple[str, int]) -> Proxy:
        made.append(Proxy(target))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


@pytest.fixture
def proxy(s3_endpoint, make_proxy) -> Proxy:
    """Before moto."""
    host, _, port = s3_endpoint.removeprefix("http://").partition(":")
    return make_proxy((host, int(port)))


def patient(settings: Settings) -> Settings:
    """Settings for tests that must succeed: an S3 request times out only after half of ``retry_seconds``."""
    return settings.model_copy(update={"retry_seconds": scaled(20.0)})


@pytest.fixture
def s3_settings(settings, proxy) -> Settings:
    """Objects in S3 behind the proxy, for tests that must fail: retries end soon."""
    url = f"s3://tests/{settings.namespace}"
    return settings.model_copy(update={"objects_url": url, "s3_endpoint_url": proxy.url, "retry_seconds": 0.3})
