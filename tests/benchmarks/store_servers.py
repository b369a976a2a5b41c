"""Servers of the store's benchmark: our own Redis, and moto as S3, each its own process.

Run as a program it starts both and prints their addresses as one line of JSON. It ends them when its standard input
closes, so they end with their parent.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import msgspec
from moto.server import ThreadedMotoServer

from agent_layer.infra.processes.locks import is_locked
from agent_layer.infra.redis.embedded import acquire_server
from agent_layer.settings import Settings

__all__ = ["Servers", "run_servers"]

_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_DEFAULT_REGION": "us-east-1"}
_END_SECONDS = 60.0


class Servers(msgspec.Struct, frozen=True, kw_only=True):
    """Where they answer."""

    redis_url: str
    s3_url: str

    def settings(self, directory: Path, *, on_s3: bool = False, namespace: str = "bench") -> Settings:
        """Settings of a store on them; a bucket is made where there is none yet."""
        fields: dict[str, object] = {"dir": directory, "redis_url": self.redis_url, "namespace": namespace}
        if on_s3:
            boto3.client("s3", endpoint_url=self.s3_url).create_bucket(Bucket="bench")
            fields |= {"objects_url": f"s3://bench/{namespace}", "s3_endpoint_url": self.s3_url}
        return Settings(**fields)


@contextmanager
def run_servers(directory: Path) -> Iterator[Servers]:
    """Run them until the block ends; the Redis keeps its append-only file in the directory."""
    for name, value in _CREDENTIALS.items():
        os.environ[name] = value
    command = [sys.executable, __file__, str(directory / "servers")]
    with (directory / "servers.log").open("w") as log:
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        yield msgspec.json.decode(holder.stdout.readline(), type=Servers)
    finally:
        holder.stdin.close()
        holder.wait(_END_SECONDS)
        _await_unlocked(directory / "servers" / "redis" / "keeper.lock")


def _await_unlocked(path: Path) -> None:
    """Wait until the Redis is gone, too: its keeper stops it after the last user."""
    deadline = time.monotonic() + _END_SECONDS
    while is_locked(path) and time.monotonic() < deadline:
        time.sleep(0.05)


def hold(directory: Path) -> None:
    """Be the process that holds them."""
    s3 = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    s3.start()
    host, port = s3.get_host_and_port()
    redis_url = f"unix://{acquire_server(Settings(dir=directory))}"
    print(json.dumps({"redis_url": redis_url, "s3_url": f"http://{host}:{port}"}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    hold(Path(sys.argv[1]))
