"""Agent Lightning's local controller: a server with everything in memory, and a process per rollout.

It looks for work every 0.05 s; by default it does every 10 s, and could not start more than 5 rollouts a second.
"""

import os
import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests
from bench_peers import LIGHTNING_PYTHON
from proxies import HERE, start_process

from agent_layer.infra.processes.addresses import free_port

__all__ = ["Lightning", "run_lightning"]

_POLL_SECONDS = 0.05
_ANSWER_SECONDS, _ROUND_SECONDS = 10.0, 90.0
_AGENT = {"local": {"agent_class": "dispatch_toy_process:Toy"}}


@dataclass(frozen=True)
class Lightning:
    """The server that is asked."""

    url: str
    headers: dict[str, str]

    def rate(self, num_rollouts: int) -> float:
        """Rollouts per second, from when they are queued until the last one has ended."""
        num_before = self._terminal(0)["total_terminal"]
        began = time.monotonic()
        self.post("/api/rollouts", [{"input": number, "config": _AGENT} for number in range(num_rollouts)])
        while (page := self._terminal(num_before))["total_terminal"] < num_before + num_rollouts:
            if time.monotonic() - began > _ROUND_SECONDS:
                raise RuntimeError(f"Agent Lightning: expected {num_rollouts} rollouts to end, found {page}")
            time.sleep(_POLL_SECONDS)
        seconds = time.monotonic() - began
        if any(item["state"] != "succeeded" for item in page["items"]):
            raise RuntimeError(f"Agent Lightning: expected all rollouts to succeed, found {page}")
        return num_rollouts / seconds

    def post(self, path: str, body: object) -> None:
        """Post a request to the server."""
        requests.post(f"{self.url}{path}", json=body, headers=self.headers, timeout=_ANSWER_SECONDS).raise_for_status()

    def _terminal(self, after: int) -> dict:
        where = f"{self.url}/api/rollouts/terminal?after={after}"
        return requests.get(where, headers=self.headers, timeout=_ANSWER_SECONDS).json()


@contextmanager
def run_lightning(directory: Path, engine_url: str, slots: int) -> Iterator[Lightning]:
    """Run its server and its controller until the block ends."""
    port, key, log = free_port(), secrets.token_hex(16), directory / "lightning.log"
    url = f"http://127.0.0.1:{port}"
    server = ["server", f"port={port}", "host=127.0.0.1", f"key={key}", "default_proxy.model_name=scripted"]
    controller = ["controller", "runner_type=local", f"agl_server.url={url}", f"agl_server.key={key}"]
    controller += [f"local_runner.maximum_size={slots}", f"local_runner.poll_interval={_POLL_SECONDS}"]
    lightning = Lightning(url, {"Authorization": f"Bearer {key}"})
    with ExitStack() as cleanup:
        cleanup.enter_context(start_process(_command(directory, server), port, log))
        lightning.post("/api/models", [{"model": "scripted", "endpoint": f"{engine_url}/v1"}])
        cleanup.enter_context(_started(_command(directory, controller), log))
        yield lightning


def _command(directory: Path, arguments: Sequence[str]) -> list[str]:
    module, *rest = arguments
    where = [f"hydra.run.dir={directory}", "hydra.output_subdir=null"]
    return [str(LIGHTNING_PYTHON), "-m", f"agentlightning.{module}", *rest, *where]


@contextmanager
def _started(command: Sequence[str], log: Path) -> Iterator[None]:
    with log.open("ab") as output:
        variables = {**os.environ, "PYTHONPATH": str(HERE)}
        process = subprocess.Popen(command, env=variables, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)
