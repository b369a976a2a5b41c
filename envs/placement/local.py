"""This file holds workers as processes of this machine, each on a leash: they end when their supervisor is killed."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path

from agent_layer.infra.processes import read_pulse
from agent_layer.schema import new_id
from agent_layer.settings import program_environment
from envs.placement.worker_handle import WorkerSpec

_POLL_SECONDS = 0.1


class WorkerProcess:
    """One worker process; ``start`` makes one."""

    def __init__(self, process: Process, pulse_file: Path) -> None:
        self._process = process
        self._pulse_file = pulse_file
        self.name = f"process {process.pid}"

    @classmethod
    async def start(cls, order: WorkerSpec) -> "WorkerProcess":
        """Start a worker; what it writes goes where ours does."""
        pulse_file = _new_pulse_file(order)
        leash = ["-m", "agent_layer.infra.processes.supervised", f"--grace={order.grace_seconds:g}"]
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, *leash, sys.executable, "-m", "agent_layer.cli", "work", *order.arguments],
            env=_inherited() | order.variables | {"AGENT_LAYER_PULSE_FILE": str(pulse_file)},
            cwd=_existing(order.directory),
            stdin=PIPE,
            start_new_session=True,
        )
        return cls(process, pulse_file)

    async def seen(self) -> None:
        """See WorkerHandle."""
        while read_pulse(self._pulse_file) is None:  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(_POLL_SECONDS)

    async def drain(self) -> None:
        """See WorkerHandle."""
        if read_pulse(self._pulse_file) is None:  # its leash may not hear signals yet, and it runs nothing
            await self.kill()
            return
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    async def kill(self) -> None:
        """See WorkerHandle; the leash asks once more before it kills."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def ended(self) -> int:
        """See WorkerHandle."""
        status = await self._process.wait()
        self._pulse_file.unlink(missing_ok=True)
        return status


def _inherited() -> dict[str, str]:
    """Variables of this process without Ray's: with its token, an agent could run anything on the cluster."""
    return {name: value for name, value in program_environment().items() if not name.startswith("RAY_")}


def _new_pulse_file(order: WorkerSpec) -> Path:
    directory = Path(order.variables["AGENT_LAYER_DIR"]) / "pulses"
    directory.mkdir(parents=True, exist_ok=True)
    return directory / new_id()


def _existing(directory: str) -> str | None:
    """Where the order says, or where this process is: on another machine there may be no such directory."""
    return directory if Path(directory).is_dir() else None
