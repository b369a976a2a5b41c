"""Redis, eight respawned workers, a consumer and a shipper, each a process that can be killed."""

import signal
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # what soaks share

from asking import RUN
from deployment import Deployment, list_children
from waiting import wait_for_exit, wait_until

from agent_layer.dispatcher.scripts import Scripts
from agent_layer.infra.redis.client import open_redis
from agent_layer.infra.redis.keys import Keys
from agent_layer.settings import Settings

__all__ = ["QueueDeployment"]

HERE = Path(__file__).parent
NUM_WORKERS = 8
_SHOWN_CHARACTERS = 1500


class QueueDeployment(Deployment):
    """Respawners that each keep one worker alive, and who consumes what the workers do."""

    def __init__(self, directory: Path, seed: int) -> None:
        settings = Settings(
            dir=directory / "state",
            redis_url=f"unix://{directory / 'redis.sock'}",
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
        super().__init__(directory, settings)
        self._seed = seed

    def start_workers(self) -> None:
        for number in range(NUM_WORKERS):
            arguments = [str(HERE / "respawner.py"), str(self.directory), str(number), str(self._seed)]
            self.start(f"respawner-{number}", [sys.executable, *arguments])

    def start_consumer(self) -> None:
        self.start("consumer", [sys.executable, str(HERE / "consumer.py"), str(self.directory), RUN])

    def workers(self) -> list[int]:
        """Return the pids of the workers that run right now."""
        respawners = [process for name, process in self.processes.items() if name.startswith("respawner")]
        return [pid for process in respawners for pid in list_children(process.pid)]

    def come_to_rest(self, seconds: float) -> None:
        """Let the workers end, everything that was recorded and decided be shipped, and every group be consumed."""
        (self.directory / "stop").touch()
        respawners = [process for name, process in self.processes.items() if name.startswith("respawner")]
        wait_until(lambda: all(process.poll() is not None for process in respawners), seconds, "workers")
        with open_redis(self.settings) as redis:
            scripts = Scripts(redis, Keys(self.settings.namespace), self.settings)
            wait_until(
                lambda: self.has_shipped() and _has_decided(scripts),
                seconds,
                "shipping",
                self.settings.log_dir / "shipper.log",
            )
        (self.directory / "shipped").touch()
        wait_for_exit(self.processes["consumer"], seconds, self.log("consumer"))

    def complaints(self) -> list[str]:
        """Return the output of workers and consumer, which print only on failure."""
        logs = [self.directory / f"{name}.log" for name in self.processes if name != "redis"]
        return [f"{log.name}: {message}" for log in logs if (message := log.read_text()[-_SHOWN_CHARACTERS:])]

    def end(self) -> None:
        for pid in self.workers():
            self.send(pid, signal.SIGKILL)
        super().end()


def _has_decided(scripts: Scripts) -> bool:
    """Whether every decision is stored, also those after the leases of cancelled rollouts expired."""
    scripts.reap()
    return not scripts.redis.exists(scripts.keys.queue("parting")) and scripts.redis.xlen(scripts.keys.outbox) == 0
