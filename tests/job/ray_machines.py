"""Ray clusters of tests: each machine is a raylet of this one, with an address, GPUs and files of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil

from agent_layer.infra import free_port

from ..waiting import scaled, wait_for_exit, wait_until

TOKEN = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "a-token-of-these-tests",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # else Ray kills its workers where others take the memory
}
_STARTS = 5
"""Ray gives up its own start after 30 seconds, which no option changes; a crowded machine needs more."""


class RayMachine:
    """One machine, whose Ray was started as users start it: ``ray start``.

    Args:
        host: its own address.
        head: address of the cluster; None: this machine is its head, which listens on ``port``.
        prefix: words before the command that starts it.
    """

    def __init__(
        self,
        home: Path,
        host: str,
        port: int,
        head: str | None,
        *,
        num_gpus: int = 1,
        num_cpus: int = 8,
        prefix: Sequence[str] = (),
    ):
        self.host = host
        self._start = partial(RayMachine, home, host, port, head, num_gpus=num_gpus, num_cpus=num_cpus, prefix=prefix)
        own = [f"--address={head}"] if head else ["--head", f"--port={port}", "--include-dashboard=false"]
        directory = [] if head else [f"--temp-dir={home}"]
        self._log = home / f"{host}.log"
        command = [
            *(*prefix, sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *own, *directory),
            *(f"--node-ip-address={host}", f"--num-gpus={num_gpus}", f"--num-cpus={num_cpus}"),
            *("--object-store-memory=100000000", "--disable-usage-stats"),
        ]
        for _ in range(_STARTS):
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(command, env=os.environ | TOKEN, stdout=log, stderr=subprocess.STDOUT)
            if wait_until(self._find_start, 240, log=self._log) == "started":
                return
        raise AssertionError(f"machine {host}: Ray did not start {_STARTS} times: {self._log.read_text()}")

    def _find_start(self) -> str | None:
        found = self._log.read_text()
        if "Ray runtime started" in found:
            return "started"
        if self._process.poll() is None:
            return None
        assert "timed out during startup" in found, found
        return "timed out"

    @property
    def raylet(self) -> psutil.Process:
        """Its raylet. Workers that it forks have its name for a moment, too, but are children of it."""
        (found,) = [one for one in psutil.Process(self._process.pid).children() if one.name() == "raylet"]
        return found

    def is_running(self) -> bool:
        """Whether its Ray runs."""
        return self._process.poll() is None and self.raylet.is_running()

    def runs(self, title: str) -> bool:
        """Whether a process on this machine has a title that begins so."""
        titles: list[str] = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.Error):
                titles.append(" ".join(process.cmdline()))
        return any(one.startswith(title) for one in titles)

    def die(self) -> None:
        """Kill its raylet with kill -9; all of Ray on this machine ends with it."""
        os.kill(self.raylet.pid, signal.SIGKILL)
        wait_for_exit(self._process, 100, self._log)

    def lose_power(self) -> None:
        """Kill all that Ray started on it with kill -9, at once."""
        for process in [self.raylet, *psutil.Process(self._process.pid).children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.kill()
        wait_for_exit(self._process, 100, self._log)

    def start_again(self) -> "RayMachine":
        """Start Ray on it again, at the same address, once the present one has ended."""
        self.stop()
        return self._start()

    def stop(self) -> None:
        """End its Ray, unless it has died."""
        if self._process.poll() is None:
            below = psutil.Process(self._process.pid).children(recursive=True)
            self._process.terminate()
            wait_for_exit(self._process, 100, self._log)
            for process in psutil.wait_procs(below, scaled(30))[1]:
                process.kill()


class RayMachines:
    """A cluster of such machines."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._port = free_port()
        self.machines: list[RayMachine] = []

    @property
    def address(self) -> str:
        """Address of its head."""
        return f"{self.machines[0].host}:{self._port}"

    def add(self, **options: int) -> RayMachine:
        """Start another machine; the first is the head."""
        host = f"127.0.0.{len(self.machines) + 2}"  # Ray takes 127.0.0.1 for any address of this machine
        head = self.address if self.machines else None
        self.machines.append(RayMachine(self.home, host, self._port, head, **options))
        return self.machines[-1]

    def mend(self) -> None:
        """Start each machine again that does not run; without its head no other goes on."""
        if not self.machines[0].is_running():
            for machine in self.machines[1:]:
                machine.stop()
        for number, machine in enumerate(self.machines):
            if not machine.is_running():
                self.machines[number] = machine.start_again()


@contextmanager
def ray_machines(home: Path, number: int, **options: int) -> Generator[RayMachines]:
    """Have a cluster of this many machines during the block; ``home`` must be a short path, for Ray's sockets."""
    found = RayMachines(home)
    try:
        for _ in range(number):
            found.add(**options)
        yield found
    finally:
        for machine in reversed(found.machines):
            machine.stop()
