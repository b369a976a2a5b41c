"""This file holds how ``work`` runs many workers: where they are placed, and the signals that are heard.

This file holds what a supervisor asks of a worker that was placed somewhere, and what a placer is told to start.
"""

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
"""In this process; in processes of this machine; on a Ray cluster."""


class Workforce(msgspec.Struct, frozen=True, kw_only=True):
    """How many workers are wanted, and where."""

    on: Where
    num_workers: int
    arguments: list[str]
    """Of ``agent-layer work``, for each of them."""
    resources: str = "{}"
    """What Ray is to give each of them, a JSON object."""


def run_workers(settings: Settings, wanted: Workforce) -> None:
    """Keep workers until SIGTERM or SIGINT, which drain them; SIGHUP replaces them one after another.

    Raises:
        BadInputError, AgentFailedError: workers do not start.
        UnreachableError: there is no Ray at the address that was given.
    """
    with _placer(settings, wanted) as place:
        asyncio.run(_supervise(Supervisor(place, wanted.num_workers, settings), settings))


@contextmanager
def _placer(settings: Settings, wanted: Workforce) -> Generator[StartWorker]:
    order = WorkerSpec.of(settings, wanted.arguments)
    if wanted.on != "ray":
        yield partial(WorkerProcess.start, order)
        return
    from envs.placement.ray import connected_ray  # noqa: PLC0415  # Ray takes seconds to import, and few have it

    with connected_ray(settings, wanted.resources, wanted.num_workers) as place_on_ray:
        yield partial(place_on_ray, order)


async def _supervise(supervisor: Supervisor, settings: Settings) -> None:
    loop = asyncio.get_running_loop()

    def tell() -> None:
        sys.stderr.write(
            f"agent-layer: waiting for {supervisor.num_living} workers, whose rollouts may go on for at most"
            f" {settings.work_drain_seconds:g} s; a second Ctrl-C gives them back at once\n"
        )
        supervisor.stop()

    loop.add_signal_handler(signal.SIGTERM, supervisor.stop)
    loop.add_signal_handler(signal.SIGINT, tell)
    loop.add_signal_handler(signal.SIGHUP, supervisor.replace)
    await supervisor.run()
