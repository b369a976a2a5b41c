"""The whole line, each part a process under the faults of ``faults.c``: Redis, gateway, workers, trainer, shipper."""

import json
import os
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # what soaks share
sys.path.append(str(Path(__file__).parents[2]))  # what all tests share

from deployment import Deployment
from servers import EmbeddedServer, OwnServer, ReplicatedServer
from shim import Control, Shim
from waiting import wait_for_exit, wait_until

from agent_layer.infra.processes.addresses import free_port, is_responding
from agent_layer.settings import Settings

__all__ = ["RUN", "Line", "Note"]

HERE = Path(__file__).parent
RUN = "forgetful"
Note = dict[str, object]
_SLOTS, _NUM_WORKERS = 8, 2
_REST_SECONDS = 120.0


class Line(Deployment):
    """Parts that are started again when they end, as a supervisor does."""

    def __init__(self, directory: Path, program: str, kind: str) -> None:
        self.shim = Shim(directory)
        self.server = _make_server(kind, program, directory, self.shim)
        self.gateway_port, self.engine_port = free_port(), free_port()
        self.engine_url = f"http://127.0.0.1:{self.engine_port}"
        waits = {"redis_replicas": 1} if kind == "replicated" and "redis_replicas" in Settings.model_fields else {}
        settings = Settings(
            **waits,
            dir=directory / "state",
            redis_url=self.server.url,
            redis_server=program if kind == "embedded" else None,
            namespace=RUN,
            run=RUN,
            gateway_url=f"http://127.0.0.1:{self.gateway_port}",
            api_key=f"ok-{secrets.token_urlsafe(12)}",
            vllm_urls=self.engine_url,
            lease_seconds=6.0,
            heartbeat_seconds=2.0,
            claim_seconds=6.0,
            retry_base_seconds=0.1,
            max_attempts=1000,  # faults must not make a rollout a dead letter
            stop_failure_rate=1.0,  # nor stop the run
            log_roll_seconds=0.2,
            compact_seconds=10.0,
        )
        super().__init__(directory, settings)
        self.controls = {name: Control(directory / f"{name}.faults") for name in self.parts}
        if isinstance(self.server, EmbeddedServer):  # the gateway starts it
            self.server.control = self.controls["gateway"]
        self.counts: Counter[str] = Counter()
        self._is_ending = False

    @property
    def parts(self) -> list[str]:
        return ["gateway", *(f"worker-{number}" for number in range(_NUM_WORKERS)), "trainer"]

    def build(self) -> None:
        """Start everything."""
        self.settings.dir.mkdir(parents=True)
        self.server.start()
        command = [sys.executable, "-m", "agent_layer.local.scripted", f"--port={self.engine_port}"]
        self.start("engine", command)
        self.await_start("engine", lambda: is_responding(f"{self.engine_url}/health"))
        self._start_part("gateway")
        self.await_start("gateway", lambda: is_responding(f"{self.settings.gateway_url}/health"))
        for name in self.parts[1:]:
            self._start_part(name)

    def _start_part(self, name: str) -> None:
        cli = [sys.executable, "-m", "agent_layer.cli"]
        match name.partition("-")[0]:
            case "gateway":
                command = [*cli, "up", "--engine", self.engine_url, "--port", str(self.gateway_port), "--no-view"]
            case "worker":
                command = [*cli, "work", "agent:agent", f"--slots={_SLOTS}"]
            case _:
                command = [sys.executable, str(HERE / "trainer.py"), str(self.directory), RUN]
        paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        self.start(name, command, self.shim.environment(self.controls[name]) | {"PYTHONPATH": paths})

    def tend(self) -> None:
        """Start again what has ended."""
        if self.server.tend():
            self.counts["Redis ended, started again"] += 1
        for name in self.parts:
            if self.processes[name].poll() is not None and not self._is_ending:
                self.counts[f"{name.partition('-')[0]} ended, started again"] += 1
                self._start_part(name)

    def read_journal(self) -> Iterator[Note]:
        """Yield the trainer's notes, oldest first."""
        path = self.directory / "journal"
        for line in path.read_bytes().splitlines() if path.exists() else ():
            yield json.loads(line)

    def come_to_rest(self) -> list[str]:
        """Let the trainer receive what it asked for, and everything be stored; what did not come to rest."""
        (self.directory / "stop").touch()
        breaches: list[str] = []

        def is_over() -> bool:
            self.server.tend()
            return self.processes["trainer"].poll() is not None

        try:
            wait_until(is_over, _REST_SECONDS, "the trainer's last groups")
        except Exception as error:  # noqa: BLE001  # a breach as any other; the audit says which groups
            breaches.append(f"no rest: {str(error).splitlines()[0]}")
        self._is_ending = True
        for name in self.parts[:-1]:
            self.processes[name].terminate()
            wait_for_exit(self.processes[name], _REST_SECONDS, self.log(name))
        wait_until(self.has_shipped, _REST_SECONDS, "shipping", self.settings.log_dir / "shipper.log")
        return breaches

    def end(self) -> None:
        self._is_ending = True
        super().end()
        self.server.end()


def _make_server(kind: str, program: str, directory: Path, shim: Shim) -> OwnServer | EmbeddedServer | ReplicatedServer:
    match kind:
        case "embedded":
            return EmbeddedServer(directory / "state", shim)
        case "replicated":
            return ReplicatedServer(program, directory / "redis", shim)
        case "remote":  # by its address: its file is not ours to sync
            return OwnServer(program, directory / "redis", shim, free_port(), host="127.0.0.2")
        case _:
            return OwnServer(program, directory / "redis", shim, free_port())
