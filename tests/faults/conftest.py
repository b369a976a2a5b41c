"""This file holds what fault tests share: a client of a gateway, how to kill one, one round of shipping."""

import json
import os
import signal
import threading
import urllib.request
from pathlib import Path

import pytest
from redis import Redis

from agent_layer.local.addresses import free_port
from agent_layer.settings import Settings
from agent_layer.shipper.direct import DirectDestination
from agent_layer.shipper.ship import Shipper
from agent_layer.store.embedded import hold_server
from agent_layer.store.objects import open_objects


def post(url, body, key, headers=None, timeout=30):
    """Send JSON and read JSON; a refusal is an HTTPError."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout) as reply:
        return json.load(reply)


class Client:
    """An agent's view of a stack, and the operator's."""

    def __init__(self, stack):
        self.gateway, self._key = stack.settings.gateway_url, stack.settings.api_key

    def open(self, **fields):
        return post(f"{self.gateway}/rollouts", {"task_id": "t1", "run": "r", **fields}, self._key)

    def ask(self, opened, text, headers=None, timeout=30, **fields):
        body = {"messages": [{"role": "user", "content": text}], **fields}
        return post(f"{opened['base_url']}/chat/completions", body, opened["api_key"], headers, timeout)

    def end(self, opened, **fields):
        return post(f"{self.gateway}/rollouts/{opened['rollout_id']}/end", fields, self._key, timeout=60)


@pytest.fixture(name="client_of")
def _client_of():
    """``client_of(stack)``."""
    return Client


@pytest.fixture
def pid_of():
    """``pid_of(leashed)``: the process on the leash itself."""

    def find(leashed) -> int:
        leash = leashed.process.pid
        (child,) = Path(f"/proc/{leash}/task/{leash}/children").read_text().split()
        return int(child)

    return find


@pytest.fixture
def kill(pid_of):
    """``kill(leashed)``: with -9, and wait for its end."""

    def kill_it(leashed) -> None:
        os.kill(pid_of(leashed), signal.SIGKILL)
        leashed.process.wait(10)

    return kill_it


@pytest.fixture
def ship_here(settings, redis, keys):
    """``ship_here(objects=None, redis=None)``: one round of shipping in this process; gives the number of segments."""

    def ship(objects=None, other_redis=None) -> int:
        settings.log_dir.mkdir(parents=True, exist_ok=True)
        direct = DirectDestination(keys, other_redis or redis, objects or open_objects(settings))
        return Shipper(settings.log_dir, direct, threading.Event()).ship_pending()

    return ship


@pytest.fixture(name="free_port")
def _free_port() -> int:
    return free_port()


class OwnRedis:
    """A Redis server that a test may spoil."""

    def __init__(self, directory: Path) -> None:
        self.url = f"unix://{hold_server(Settings(dir=directory))}"
        with Redis.from_url(self.url) as redis:
            self._pid = int(redis.info("server")["process_id"])

    def send(self, number: signal.Signals) -> None:
        os.kill(self._pid, number)


@pytest.fixture
def own_redis(tmp_path):
    """A server of this test's own; it goes on when the test ends."""
    redis = OwnRedis(tmp_path / "own")
    yield redis
    redis.send(signal.SIGCONT)
