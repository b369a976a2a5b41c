"""Redis, S3, engine, gateway, agents and their shipper, each a process that can be killed."""

import os
import secrets
import signal
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # what soaks share

import boto3
from deployment import Deployment, list_children, read_command
from waiting import WaitExpired, wait_for_exit, wait_until

from agent_layer.engines.join import register_engine
from agent_layer.infra.processes.addresses import free_port, is_responding
from agent_layer.infra.redis.client import open_redis
from agent_layer.recorder.quota import Quota
from agent_layer.settings import Settings

__all__ = ["GatewayDeployment"]

HERE = Path(__file__).parent


class GatewayDeployment(Deployment):
    """A gateway between agents and a scripted engine."""

    def __init__(self, directory: Path, seed: int, *, is_s3: bool) -> None:
        self.seed, self.is_s3 = seed, is_s3
        self.gateway_port, self.engine_port, self.s3_port = free_port(), free_port(), free_port()
        self.engine_url = f"http://127.0.0.1:{self.engine_port}"
        settings = Settings(
            dir=directory / "state",
            redis_url=f"unix://{directory / 'redis.sock'}",
            objects_url="s3://storm/prefix" if is_s3 else None,
            s3_endpoint_url=f"http://127.0.0.1:{self.s3_port}" if is_s3 else None,
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
        super().__init__(directory, settings)

    def build(self) -> None:
        """Start everything but the agents."""
        self.start_redis()
        if self.is_s3:
            os.environ |= {"AWS_ACCESS_KEY_ID": "t", "AWS_SECRET_ACCESS_KEY": "t", "AWS_DEFAULT_REGION": "us-east-1"}
            self.start_program("s3", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.s3_port))
            self.await_start("s3", lambda: is_responding(f"{self.settings.s3_endpoint_url}/moto-api"))
            boto3.client("s3", endpoint_url=self.settings.s3_endpoint_url).create_bucket(Bucket="storm")
        self.start_program(
            "engine", str(HERE / "engine.py"), str(self.engine_port), str(self.directory / "engine.book")
        )
        self.await_start("engine", lambda: is_responding(f"{self.engine_url}/health"))
        with open_redis(self.settings) as redis:
            register_engine(self.settings, redis, self.engine_url)
        self.start_gateway()

    def start_gateway(self) -> None:
        self.start_program("gateway", "-m", "agent_layer.gateway", "--port", str(self.gateway_port))
        self.await_start("gateway", lambda: is_responding(f"{self.settings.gateway_url}/health"))

    def start_agents(self) -> None:
        self.start_program("agents", str(HERE / "agents.py"), str(self.directory), str(self.seed), self.engine_url)

    def agents(self) -> list[int]:
        """Return the pids of the agents that run right now."""
        if "agents" not in self.processes:
            return []
        return [pid for pid in list_children(self.processes["agents"].pid) if b"agents.py" in read_command(pid)]

    def is_log_full(self) -> bool:
        """Whether writers have to wait for the shipper."""
        return not Quota(self.settings.log_dir, self.settings.log_quota_bytes).has_room()

    def come_to_rest(self, seconds: float) -> None:
        """Let the agents end, and everything that was recorded be shipped."""
        (self.directory / "stop").touch()
        try:
            wait_for_exit(self.processes["agents"], seconds, self.log("agents"))
        except WaitExpired:
            for pid in self.agents():
                self.send(pid, signal.SIGUSR1)  # each writes its stack into agents.log
            raise
        self.processes["gateway"].terminate()
        wait_for_exit(self.processes["gateway"], seconds, self.log("gateway"))
        wait_until(self.has_shipped, seconds, "shipping", self.settings.log_dir / "shipper.log")

    def end(self) -> None:
        for pid in self.agents():
            self.send(pid, signal.SIGKILL)
        super().end()

    def start_program(self, name: str, *arguments: str) -> None:
        self.start(name, [sys.executable, *arguments])
