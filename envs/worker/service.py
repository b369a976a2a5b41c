"""This file holds how a worker and what it needs are put together in one process, and served until a signal."""

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
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
from envs.host.beginning import raise_file_limit
from envs.host.making import make_hosts, make_scorers
from envs.host.target import HostTarget
from envs.leaving import Leaving
from envs.progress import StartGate
from envs.resuming.declaring import is_resumable
from envs.resuming.keeping import CheckpointShelf
from envs.scoring import AGENT
from envs.scoring_stage import ScoringStage
from envs.sealing import SealWatch
from envs.targets import Target
from envs.telling import tell_begun, tell_ended
from envs.worker import Worker
from envs.workplace import Workplace
from tracer.tracing import Tracing

__all__ = ["WorkOptions", "open_worker", "serve_worker"]

_NUM_THREADS = 8
"""For what blocks: opening and closing at the gateway, Redis, the store."""


class WorkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told to do."""

    agent: str
    """Name of the target; tasks may ask for it by ``agent`` or ``env``."""
    target: Target | None = None
    """Run in the worker's own process, such as a command; None: what ``agent`` names, run in a host."""
    is_isolated: bool = False
    """Each attempt has a process of its own; for targets that run in hosts."""
    is_resumable: bool = False
    """What the agent saves is kept; for targets in hosts, these say so."""
    env: str | None = None
    """Name of the environment that the target is; None: it is none, or a host will say."""
    env_version: str | None = None
    slots: int = 16
    score_slots: int = 16
    """Judgements at the same time; they take up no slot of the agents."""
    needs: frozenset[str] = frozenset()
    """What tasks may need of it."""
    scorer: str = AGENT
    """For tasks that name none."""
    run: str = ""
    """Only tasks of this run; empty: of any."""


async def serve_worker(settings: Settings, options: WorkOptions) -> None:
    """Work until SIGINT or SIGTERM; what runs may go on for ``work_drain_seconds``, or until a second signal.

    Raises:
        UnreachableError: Redis does not answer.
        BadInputError: no gateway is named, or the agent or scorer is not there.
    """
    raise_file_limit()
    with ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="worker") as pool:
        async with open_worker(settings, options, pool) as worker:
            Leaving(worker, settings.work_drain_seconds).listen()
            tell_begun(worker, options.agent, options.slots, options.run)
            await worker.work()
            tell_ended(worker)
        # in a container nobody outlives this process, so what it said of attempts that it gave back is shipped first
        await asyncio.to_thread(open_recorder(settings).flush, settings.stop_seconds)


@asynccontextmanager
async def open_worker(settings: Settings, options: WorkOptions, pool: ThreadPoolExecutor) -> AsyncGenerator[Worker]:
    """Bring up the processes in which agents and scorers run, and a worker that uses them; raises as above.

    When the agent's process cannot be started any more, the worker is stopped and the block ends with the error.
    """
    async with AsyncExitStack() as ended_with_it:
        scoring = ScoringStage(settings, options.score_slots, lambda: make_scorers(settings))
        ended_with_it.push_async_callback(scoring.close)
        if options.scorer != AGENT and (error := await scoring.check(options.scorer)) is not None:
            raise BadInputError(error)
        if options.target is not None:
            yield _make_worker(settings, options, pool, scoring, options.target)
            return
        hosts = make_hosts(settings, options.agent, is_isolated=options.is_isolated)
        ended_with_it.push_async_callback(hosts.close)
        ready = await hosts.prepare()
        options = msgspec.structs.replace(
            options, env=ready.env, env_version=ready.env_version, is_resumable=ready.is_resumable
        )
        target = HostTarget(hosts, settings.close_seconds)
        worker = _make_worker(settings, options, pool, scoring, target)
        target.failed.add_done_callback(lambda _: worker.stop())
        yield worker
        if target.failed.done():
            raise target.failed.result()


def _make_worker(
    settings: Settings, options: WorkOptions, pool: ThreadPoolExecutor, scoring: ScoringStage, target: Target
) -> Worker:
    """Open what the worker needs; raises as ``serve_worker`` does."""
    recorder = open_recorder(settings)
    gateway = Tracing(settings=settings, sink=recorder).gateway
    if gateway is None:
        raise BadInputError(
            "work: expected the address of a gateway in AGENT_LAYER_GATEWAY_URL, found none;"
            " start one with 'agent-layer up', which prints it"
        )
    store = open_store(settings)
    keys = Keys(settings.namespace)
    queue = Queue(store.redis, keys, settings)
    count = partial(count_calls, store.redis, store.keys)
    shelf = CheckpointShelf(keys=keys, objects=store.objects, note=queue.checkpoint, pool=pool)
    recorder.attend()
    tracer.init(settings)
    place = Workplace(
        settings=settings,
        worker=f"{settings.host}-{new_id()[-8:]}",
        target=target,
        agent=options.agent,
        scorer=options.scorer,
        env=options.env,
        env_version=options.env_version,
        gateway=gateway,
        recorder=recorder,
        store=store,
        sealing=SealWatch(count, recorder.is_settled, pool, poll_seconds=settings.ship_poll_seconds),
        pool=pool,
        scoring=scoring,
        gate=StartGate(settings.max_starts),
        shelf=shelf if options.is_resumable or is_resumable(target) else None,
    )
    return Worker(
        queue,
        place,
        slots=options.slots,
        capabilities=sorted(options.needs | {f"agent:{options.agent}", f"env:{options.agent}"}),
        run=options.run,
    )
