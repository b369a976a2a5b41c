"""Workers as processes of this machine; each ends when its supervisor is killed."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path

from agent_layer.infra import make_private, read_pulse, supervised_command
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
    async def start(cls, spec: WorkerSpec) -> "WorkerProcess":
        """Start a worker; it shares our standard output and error."""
        pulses = Path(spec.variables["AGENT_LAYER_DIR"]) / "pulses"
        make_private(pulses)
        pulse_file = pulses / new_id()
        command = [sys.executable, "-m", "agent_layer.cli", "work", *spec.arguments]
        process = await asyncio.create_subprocess_exec(
            *supervised_command(command, spec.grace_seconds),
            env=_inherited() | spec.variables | {"AGENT_LAYER_PULSE_FILE": str(pulse_file)},
            cwd=_existing(spec.directory),
            stdin=PIPE,
            start_new_session=True,
        )
        return cls(process, pulse_file)

    async def wait_ready(self) -> None:
        """See WorkerHandle."""
        while read_pulse(self._pulse_file) is None:  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(_POLL_SECONDS)

    async def drain(self) -> None:
        """See WorkerHandle."""
        if read_pulse(self._pulse_file) is None:  # it may not handle signals yet, and it runs nothing
            await self.kill()
            return
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    async def kill(self) -> None:
        """See WorkerHandle; its supervising process first sends SIGTERM once more."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def wait_exit(self) -> int:
        """See WorkerHandle."""
        status = await self._process.wait()
        self._pulse_file.unlink(missing_ok=True)
        return status


def _inherited() -> dict[str, str]:
    """Return this process's variables without Ray's: with its token, an agent could run anything on the cluster."""
    return {name: value for name, value in program_environment().items() if not name.startswith("RAY_")}


def _existing(directory: str) -> str | None:
    """Return the directory if it exists on this machine, else None for the current one."""
    return directory if Path(directory).is_dir() else None
