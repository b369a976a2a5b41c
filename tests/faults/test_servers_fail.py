"""S3 that refuses, hangs or hangs up, Redis that takes no writes: shipping goes on when they do, nothing is lost."""

import socket
import threading
from collections.abc import Iterator

import boto3
import pytest
from redis import Redis

from agent_layer.errors import UnreachableError
from agent_layer.recorder import Recorder, open_recorder
from agent_layer.schema.reward import Reward
from agent_layer.settings import Settings
from agent_layer.store.objects import open_objects
from agent_layer.store.store import open_store

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
BROKEN = b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"


def reward(name: str) -> Reward:
    return Reward(trajectory_id="r.0-0", reward_id=name, run="r", at=1.0, name=name, score=1.0)


class Proxy:
    """Stands before a server; while ``mood`` is set, no request gets through."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.mood: str | None = None
        self.num_spoiled = 0
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
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
            if self.mood is None:
                self._forward(client)
                return
            self.num_spoiled += 1
            client.recv(65536)
            if self.mood == "hangs":
                self._stop.wait(30)
            elif self.mood == "resets":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            else:
                status, body = (b"503 Slow Down", SLOW_DOWN) if self.mood == "slows down" else (b"500 Broken", BROKEN)
                client.sendall(
                    b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body)) + body
                )

    def _forward(self, client: socket.socket) -> None:
        with socket.create_connection(self._target) as server:
            back = threading.Thread(target=_pump, args=(server, client), daemon=True)
            back.start()
            _pump(client, server)
            back.join()


def _pump(source: socket.socket, drain: socket.socket) -> None:
    try:
        while content := source.recv(65536):
            drain.sendall(content)
        drain.shutdown(socket.SHUT_WR)
    except OSError:
        return


@pytest.fixture
def proxy(s3_endpoint) -> Iterator[Proxy]:
    host, _, port = s3_endpoint.removeprefix("http://").partition(":")
    proxy = Proxy((host, int(port)))
    yield proxy
    proxy.close()


@pytest.fixture
def s3_settings(settings, s3_endpoint, proxy) -> Settings:
    """Objects in S3 behind the proxy, whose patience is short."""
    bucket = f"{settings.namespace}-bucket"
    boto3.client("s3", endpoint_url=s3_endpoint).create_bucket(Bucket=bucket)
    return settings.model_copy(
        update={"objects_url": f"s3://{bucket}", "s3_endpoint_url": proxy.url, "retry_seconds": 0.3}
    )


@pytest.mark.parametrize("mood", ["is broken", "slows down", "hangs", "resets"])
def test_what_s3_does_not_take_stays_in_the_log_and_arrives_later(s3_settings, proxy, ship_here, mood):
    recorder = Recorder(s3_settings)
    name = recorder.append(reward("a"))
    recorder.close()
    proxy.mood = mood

    with pytest.raises(UnreachableError, match="expected to store"):
        ship_here(open_objects(s3_settings))
    assert not recorder.is_settled(name)
    assert proxy.num_spoiled > 0

    proxy.mood = None
    assert ship_here(open_objects(s3_settings)) == 1
    assert recorder.is_settled(name)
    assert [one.name for one in open_store(s3_settings).get("r.0-0").rewards] == ["a"]


def test_a_shipper_outlives_an_outage_of_s3(s3_settings, proxy):
    proxy.mood = "is broken"
    recorder = open_recorder(s3_settings)
    recorder.append(reward("a"))

    assert recorder.flush(timeout=1.5).pending == 1
    proxy.mood = None
    assert recorder.flush(timeout=30).pending == 0


@pytest.mark.parametrize(
    ("spoil", "mend"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
        (("CLIENT", "PAUSE", "2000", "WRITE"), ("CLIENT", "UNPAUSE")),
        (("DEBUG", "RELOAD"), ("PING",)),
    ],
    ids=["is out of memory", "is read-only", "stands still", "reads its file again"],
)
def test_what_redis_does_not_take_stays_in_the_log_and_arrives_later(settings, own_redis, spoil, mend):
    own_settings = settings.model_copy(update={"redis_url": own_redis.url})
    with Redis.from_url(own_settings.redis_url) as redis:
        redis.execute_command(*spoil)
        recorder = open_recorder(own_settings)
        recorder.append(reward("a"))

        assert mend == ("PING",) or recorder.flush(timeout=1.0).pending == 1
        redis.execute_command(*mend)
        assert recorder.flush(timeout=30).pending == 0
        store = open_store(own_settings)
        assert [one.name for one in store.get("r.0-0").rewards] == ["a"]
        assert store.check().findings == []
