"""Processes as Linux shows them from outside."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from agent_layer.infra.processes.reaper import list_children
from agent_layer.infra.processes.supervised import SupervisedProcess

__all__ = ["find_parent", "find_pid", "is_running", "list_family", "read_command", "stop_shippers"]


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    stat = _read_proc(pid, "stat")
    return stat != "" and stat.rpartition(")")[2].split()[0] != "Z"


def find_parent(pid: int) -> int:
    return int(_read_proc(pid, "stat").rpartition(")")[2].split()[1])


def read_command(pid: int) -> list[str]:
    """Empty when the process is gone."""
    return _read_proc(pid, "cmdline").split("\0")[:-1]


def list_family(pid: int) -> Iterator[int]:
    """All below a process."""
    for child in list_children(pid):
        yield child
        yield from list_family(child)


def find_pid(leashed: SupervisedProcess) -> int:
    """The process on the leash itself."""
    (child,) = list_children(leashed.process.pid)
    return child


def _read_proc(pid: int, file: str) -> str:
    """Empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/{file}").read_text()
    except OSError:
        return ""


def stop_shippers(directory: Path) -> None:
    """End the shippers of all namespaces below a directory; their locks name them."""
    for lock in directory.glob("logs/*/shipper.lock"):
        if pid := lock.read_text().strip():
            try:
                os.kill(int(pid), signal.SIGTERM)
            except ProcessLookupError:
                continue
