"""Several gateway processes behind one port: started together, restarted when one dies, stopped together.

This process reserves the shared port while it runs, so no other program can take the place of a dead gateway.
"""

import logging
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from agent_layer.errors import BadInputError, EngineError, UnreachableError
from agent_layer.gateway import check_exposure
from agent_layer.infra import (
    RestartHistory,
    RestartPolicy,
    SupervisedProcess,
    is_listening,
    reachable_host,
    start_supervised,
)
from agent_layer.settings import Settings

_START_SECONDS = 60.0
_MAX_SHORT = 5
_RESTARTS = RestartPolicy(healthy_seconds=5.0, max_short=_MAX_SHORT)

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class GatewayProcesses:
    """Gateway processes on one machine. Context manager: they serve during the block."""

    settings: Settings
    """Settings, with the operator's key."""
    host: str
    port: int
    """Shared port; the processes' own ports follow it. 0: free ports."""
    num_processes: int
    processes: list[SupervisedProcess] = field(default_factory=list[SupervisedProcess])
    """[num_processes]."""
    _urls: list[str] = field(default_factory=list[str])
    _started_at: list[float] = field(default_factory=list[float])
    _histories: list[RestartHistory] = field(default_factory=list[RestartHistory])
    _cleanup: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        with ExitStack() as cleanup:
            wanted_port = self.port
            self.port = self._reserve(cleanup, wanted_port)
            ports = [
                self._reserve(cleanup, wanted_port and wanted_port + 1 + slot) for slot in range(self.num_processes)
            ]
            self._urls = [f"{self._scheme}://{reachable_host(self.host)}:{port}" for port in ports]
            cleanup.callback(lambda: _close_all(self.processes))
            self.processes = [self._start(slot) for slot in range(self.num_processes)]
            self._started_at = [time.monotonic()] * self.num_processes
            self._histories = [RestartHistory(_RESTARTS) for _ in range(self.num_processes)]
            for process, url in zip(self.processes, self._urls, strict=True):
                if not process.wait_until_up(partial(is_listening, url), _START_SECONDS):
                    raise UnreachableError(
                        f"gateway at {url}: expected it to serve within {_START_SECONDS:.0f} s, but it does not; see"
                        f" {process.log}, which ends: {process.log_tail}"
                    )
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    @property
    def url(self) -> str:
        """Return the shared address for clients on this machine."""
        return f"{self._scheme}://{reachable_host(self.host)}:{self.port}"

    def check(self) -> None:
        """Restart each process that ended.

        Raises: EngineError: one keeps ending soon after its start.
        """
        for slot, process in enumerate(self.processes):
            if not process.is_running:
                self._restart(slot)

    def _restart(self, slot: int) -> None:
        now = time.monotonic()
        history, ended = self._histories[slot], self.processes[slot]
        history.record_exit(now - self._started_at[slot])
        if history.must_give_up:
            raise EngineError(
                f"gateway process {slot}: expected it to run, but it has ended {_MAX_SHORT} times in a row; see"
                f" {ended.log}, which ends: {ended.log_tail}"
            )
        log.warning("gateway process %d ended and is restarted", slot)
        ended.stop()
        self.processes[slot], self._started_at[slot] = self._start(slot), now

    def _start(self, slot: int) -> SupervisedProcess:
        command = [sys.executable, "-m", "agent_layer.gateway", f"--host={self.host}", f"--port={self.port}"]
        command += [f"--slot={slot}", "--siblings", *self._urls]
        return start_supervised(
            command, self.settings.environment(), self.settings.dir / "logs" / f"gateway-{slot}.log"
        )

    @property
    def _scheme(self) -> str:
        return "https" if self.settings.tls_cert else "http"

    def _reserve(self, cleanup: ExitStack, port: int) -> int:
        """Reserve a port for our processes: a bound socket that does not listen receives no connection."""
        kept = cleanup.enter_context(socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET))
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            kept.bind((self.host, port))
        except OSError as error:
            raise BadInputError(
                f"gateway address {self.host}:{port}: expected to listen there, found {error}; choose another --port or"
                " --host"
            ) from error
        check_exposure(self.settings, kept.getsockname()[0])
        return int(kept.getsockname()[1])


def _close_all(processes: Sequence[SupervisedProcess]) -> None:
    """Ask all processes to end before waiting for any."""
    for process in processes:
        process.begin_stop()
    for process in processes:
        process.stop()
