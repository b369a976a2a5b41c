"""Random failures of the deployment's processes until enough calls were made."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals

from gateway_deployment import GatewayDeployment
from waiting import wait_until

_CALM_SECONDS = 240.0
"""For the calls that are left once it is calm, also on a machine that is busy with much else."""


@dataclass
class Chaos:
    """Kills and freezes; ``counts`` has the number of each."""

    deployment: GatewayDeployment
    chance: random.Random
    counts: Counter[str] = field(default_factory=Counter[str])

    def cause_failures(self, num_calls: int, limit_seconds: float) -> None:
        """Go on until the engine was asked so often, or time is over; then it is calm until the engine was."""
        deadline = time.monotonic() + limit_seconds
        kinds: dict[Callable[[], None], float] = {
            self.kill_an_agent: 4,
            self.kill_the_shipper: 4,
            self.kill_the_gateway: 0.7,
            self.freeze_the_shipper: 1.5,
            self.freeze_the_gateway: 0.7,
            self.freeze_redis: 1,
            self.kill_redis: 1,
        }
        if self.deployment.is_s3:
            kinds[self.freeze_s3] = 1.5
        while self.num_asked() < num_calls and time.monotonic() < deadline:  # wait: how long it rages
            self.rest(0.1, 0.7)
            self.chance.choices([*kinds], [*kinds.values()])[0]()
        wait_until(lambda: self.num_asked() >= num_calls, _CALM_SECONDS, f"{num_calls} calls")

    def num_asked(self) -> int:
        """Calls that the engine began."""
        path: Path = self.deployment.directory / "engine.book"
        return path.read_bytes().count(b"began\t") if path.exists() else 0

    def rest(self, shortest: float, longest: float) -> None:
        time.sleep(self.chance.uniform(shortest, longest))

    def kill_an_agent(self) -> None:
        if agents := self.deployment.agents():
            self.deployment.send(self.chance.choice(agents), signal.SIGKILL)
            self.counts["agents killed"] += 1

    def kill_the_shipper(self) -> None:
        if pid := self.deployment.shipper():
            self.deployment.send(pid, signal.SIGKILL)
            self.counts["shippers killed"] += 1

    def kill_the_gateway(self) -> None:
        self.deployment.kill("gateway")
        self.counts["gateways killed"] += 1
        self.deployment.start_gateway()

    def kill_redis(self) -> None:
        self.deployment.kill("redis")
        self.counts["Redis restarts"] += 1
        self.rest(0.0, 0.5)
        self.deployment.start_redis()

    def freeze_the_shipper(self) -> None:
        if pid := self.deployment.shipper():
            self._freeze(pid, "shipper freezes", 2.5)

    def freeze_the_gateway(self) -> None:
        self._freeze(self.deployment.processes["gateway"].pid, "gateway freezes", 1.0)

    def freeze_redis(self) -> None:
        self._freeze(self.deployment.processes["redis"].pid, "Redis freezes", 2.5)

    def freeze_s3(self) -> None:
        self._freeze(self.deployment.processes["s3"].pid, "S3 freezes", 2.0)

    def _freeze(self, pid: int, what: str, longest: float) -> None:
        self.deployment.send(pid, Signals.SIGSTOP)
        self.counts[what] += 1
        self.rest(0.2, longest)
        self.counts["freezes that filled the log"] += self.deployment.is_log_full()
        self.deployment.send(pid, Signals.SIGCONT)
