"""A worker process that a supervisor started, wherever it runs, and the spec to start one."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from agent_layer.settings import Settings


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One worker to start, on any machine."""

    arguments: list[str]
    """Arguments of ``agent-layer work``."""
    variables: dict[str, str]
    """Settings with secrets, added to the machine's own environment."""
    directory: str
    """Working directory, if it exists there."""
    grace_seconds: float
    """Longest time between the end of its supervisor and its own."""

    @classmethod
    def from_settings(cls, settings: Settings, arguments: list[str]) -> "WorkerSpec":
        """Return the spec of a worker with these settings, in this process's directory."""
        return cls(
            arguments=arguments,
            variables=settings.environment(),
            directory=str(Path.cwd()),
            grace_seconds=max_shutdown_seconds(settings),
        )


def max_shutdown_seconds(settings: Settings) -> float:
    """Return the longest time from a drain request to the worker's end: drain, store, ship, and a margin."""
    return settings.work_drain_seconds + 2 * settings.stop_seconds + settings.retry_seconds


class WorkerHandle(Protocol):
    """A worker process, on this machine or another."""

    @property
    def name(self) -> str:
        """Where it runs, for logs."""
        ...

    async def wait_ready(self) -> None:
        """Wait for its first answered heartbeat."""
        ...

    async def drain(self) -> None:
        """Ask it to drain; a second request makes it return its attempts to the queue at once."""
        ...

    async def kill(self) -> None:
        """Kill it."""
        ...

    async def wait_exit(self) -> int:
        """Wait for its end; return its exit status, negative when it was killed."""
        ...


StartWorker: TypeAlias = Callable[[], Awaitable[WorkerHandle]]
"""Starts one more worker."""
