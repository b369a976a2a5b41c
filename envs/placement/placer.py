"""Runs the workers of one ``work`` command: chooses where they start, and handles signals."""

import asyncio
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Literal, TypeAlias

import msgspec

from agent_layer.settings import Settings
from envs.placement.local import WorkerProcess
from envs.placement.supervisor import Supervisor
from envs.placement.worker_handle import StartWorker, WorkerSpec

Where: TypeAlias = Literal["here", "processes", "ray"]
"""Place of workers: in this process; in processes of this machine; on a Ray cluster."""


class Workforce(msgspec.Struct, frozen=True, kw_only=True):
    """Number and place of the workers to run."""

    on: Where
    num_workers: int
    arguments: list[str]
    """Arguments of ``agent-layer work`` for each worker."""
    resources: str = "{}"
    """Ray resources for each worker, a JSON object."""


def run_workers(settings: Settings, workforce: Workforce) -> None:
    """Keep workers until SIGTERM or SIGINT, which drain them; SIGHUP replaces them one after another.

    Raises:
        BadInputError, AgentFailedError: workers do not start.
        UnreachableError: no Ray answers at the given address.
    """
    with _open_starter(settings, workforce) as start_worker:
        asyncio.run(_supervise(Supervisor(start_worker, workforce.num_workers, settings), settings))


@contextmanager
def _open_starter(settings: Settings, workforce: Workforce) -> Generator[StartWorker]:
    spec = WorkerSpec.from_settings(settings, workforce.arguments)
    if workforce.on != "ray":
        yield partial(WorkerProcess.start, spec)
        return
    from envs.placement.ray import connected_ray  # noqa: PLC0415  # Ray takes seconds to import, and few have it

    with connected_ray(settings, workforce.resources, workforce.num_workers) as start_on_ray:
        yield partial(start_on_ray, spec)


async def _supervise(supervisor: Supervisor, settings: Settings) -> None:
    loop = asyncio.get_running_loop()

    def on_interrupt() -> None:
        sys.stderr.write(
            f"agent-layer: waiting for {supervisor.num_running} workers, whose rollouts may go on for at most"
            f" {settings.work_drain_seconds:g} s; a second Ctrl-C gives them back at once\n"
        )
        supervisor.stop()

    loop.add_signal_handler(signal.SIGTERM, supervisor.stop)
    loop.add_signal_handler(signal.SIGINT, on_interrupt)
    loop.add_signal_handler(signal.SIGHUP, supervisor.replace)
    await supervisor.run()
