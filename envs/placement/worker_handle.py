"""A placed worker process, wherever it runs."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from agent_layer.settings import Settings


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One worker to be started on some machine."""

    arguments: list[str]
    """Of ``agent-layer work``."""
    variables: dict[str, str]
    """Settings, secrets included; beside what the machine's own environment has."""
    directory: str
    """In which it works, where there is such a one."""
    grace_seconds: float
    """Between the end of its supervisor and its own, at most."""

    @classmethod
    def of(cls, settings: Settings, arguments: list[str]) -> "WorkerSpec":
        """WorkerSpec a worker with these settings, which works where this process does."""
        return cls(
            arguments=arguments,
            variables=settings.environment(),
            directory=str(Path.cwd()),
            grace_seconds=longest_shutdown_seconds(settings),
        )


def longest_shutdown_seconds(settings: Settings) -> float:
    """How long a worker takes at most from being told to drain to its end: drain, store, ship, and a little."""
    return settings.work_drain_seconds + 2 * settings.stop_seconds + settings.retry_seconds


class WorkerHandle(Protocol):
    """A worker, wherever it runs."""

    @property
    def name(self) -> str:
        """Where it runs, for people."""
        ...

    async def seen(self) -> None:
        """Wait until a heartbeat of it was answered."""
        ...

    async def drain(self) -> None:
        """Tell it to end; told a second time, it gives back at once what it runs."""
        ...

    async def kill(self) -> None:
        """End it although it does not end."""
        ...

    async def ended(self) -> int:
        """Wait for its end; its exit status, negative when it was killed."""
        ...


StartWorker: TypeAlias = Callable[[], Awaitable[WorkerHandle]]
"""Starts one more worker."""
