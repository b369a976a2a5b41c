"""This file holds how a worker is put together in a process, and how signals end it."""

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

import tracer
from agent_layer.dispatcher import Queue
from agent_layer.errors import BadInputError
from agent_layer.recorder import open_recorder
from agent_layer.schema.ids import new_id
from agent_layer.settings import Settings
from agent_layer.store.keys import Keys
from agent_layer.store.sealing import count_calls
from agent_layer.store.store import open_store
from envs.scoring import AGENT
from envs.sealing import SealWatch
from envs.targets import Target
from envs.worker import Worker
from envs.workplace import Workplace
from tracer.tracing import Tracing

__all__ = ["WorkOptions", "make_worker", "serve_worker"]

_NUM_THREADS = 8
"""For what blocks: opening and closing at the gateway, Redis, the store."""


class WorkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told to do."""

    agent: str
    """Name of the target; tasks may ask for it by ``agent`` or ``env``."""
    target: Target
    env: str | None = None
    """Name of the environment that the target is; None: it is none."""
    env_version: str | None = None
    slots: int = 16
    needs: frozenset[str] = frozenset()
    """What tasks may need of it."""
    scorer: str = AGENT
    """For tasks that name none."""
    run: str = ""
    """Only tasks of this run; empty: of any."""


async def serve_worker(settings: Settings, options: WorkOptions) -> None:
    """Work until SIGINT or SIGTERM; a second one ends the process at once.

    Raises:
        UnreachableError: Redis does not answer.
        BadInputError: no gateway is named.
    """
    with ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="worker") as pool:
        worker = make_worker(settings, options, pool)
        loop = asyncio.get_running_loop()

        def end() -> None:
            worker.stop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end)
        await worker.work()


def make_worker(settings: Settings, options: WorkOptions, pool: ThreadPoolExecutor) -> Worker:
    """Open what the worker needs; raises as ``serve_worker`` does."""
    recorder = open_recorder(settings)
    gateway = Tracing(settings=settings, sink=recorder).gateway
    if gateway is None:
        raise BadInputError(
            "work: expected the address of a gateway in AGENT_LAYER_GATEWAY_URL, found none;"
            " start one with 'agent-layer up', which prints it"
        )
    store = open_store(settings)
    count = partial(count_calls, store.redis, store.keys)
    tracer.init(settings)
    place = Workplace(
        settings=settings,
        worker=f"{settings.host}-{new_id()[-8:]}",
        target=options.target,
        agent=options.agent,
        scorer=options.scorer,
        env=options.env,
        env_version=options.env_version,
        gateway=gateway,
        recorder=recorder,
        store=store,
        sealing=SealWatch(count, recorder.is_settled, pool, poll_seconds=settings.ship_poll_seconds),
        pool=pool,
    )
    return Worker(
        Queue(store.redis, Keys(settings.namespace), settings),
        place,
        slots=options.slots,
        capabilities=sorted(options.needs | {f"agent:{options.agent}", f"env:{options.agent}"}),
        run=options.run,
    )
