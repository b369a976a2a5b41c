"""This file holds how a worker and what it needs are put together in one process, and served until a signal.

This file holds what a worker tells whoever started it: that it is up, and in the end what became of what it ran.

This file holds how signals end a worker: the first lets what runs go on for a time, the second gives it back.

This file holds the workplace: what all attempts of a worker share.
"""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TextIO

import msgspec

import tracer
from agent_layer.dispatcher import Queue
from agent_layer.errors import BadInputError
from agent_layer.infra.redis import Keys
from agent_layer.recorder import open_recorder
from agent_layer.schema import new_id
from agent_layer.settings import Settings
from agent_layer.state import count_calls
from agent_layer.store import open_store
from envs.agents import Target
from envs.checkpoints import CheckpointStore
from envs.hosts import HostTarget, make_hosts, make_scorers, raise_file_limit
from envs.progress import StartLimiter
from envs.resume import is_resumable
from envs.scorers import AGENT
from envs.worker.context import WorkerContext
from envs.worker.scoring import ScoringStage
from envs.worker.stored_waiter import StoredWaiter
from envs.worker.worker import Worker
from tracer import Session


def print_started(worker: Worker, agent: str, slots: int, run: str, told: TextIO | None = None) -> None:
    """Say who works, and how it is ended; to standard error, where nothing else is named."""
    of_run = f" for run {run}" if run else ""
    _tell(f"worker {worker.name} runs {agent}{of_run}, {slots} at a time; Ctrl-C drains it", told)


def print_ended(worker: Worker, told: TextIO | None = None) -> None:
    """Say how often it reported what."""
    _tell(f"worker {worker.name} has ended: {_describe_endings(worker.endings)}", told)


def _describe_endings(endings: Counter[str]) -> str:
    """Say it in the words of whoever looks at rollouts; attempts that failed are tried again, or were given up."""
    named = {
        "completed": endings["completed"] + endings["truncated"],
        "failed": endings["retry"] + endings["dead"],
        "given back": endings["release"] + endings["pause"],
    }
    return ", ".join(f"{num:,} {name}" for name, num in named.items() if num) or "it ran nothing"


def _tell(sentence: str, told: TextIO | None) -> None:
    print(f"agent-layer: {sentence}", file=told or sys.stderr, flush=True)


_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ShutdownSignals:
    """Ends one worker by signals; after the second, the next one ends the process as it would any other.

    Args:
        worker: whom they end.
        drain_seconds: how long what runs may go on after the first.
        told: where a person who pressed Ctrl-C reads what is waited for.
    """

    def __init__(self, worker: Worker, drain_seconds: float, told: TextIO = sys.stderr) -> None:
        self._worker = worker
        self._drain_seconds = drain_seconds
        self._told = told
        self._is_draining = False

    def listen(self) -> None:
        """Hear signals from now on, in this loop's thread."""
        loop = asyncio.get_running_loop()
        for number in _ENDING_SIGNALS:
            loop.add_signal_handler(number, self._hear, number)

    def _hear(self, number: signal.Signals) -> None:
        if self._is_draining:
            self._worker.stop()
            for one in _ENDING_SIGNALS:
                asyncio.get_running_loop().remove_signal_handler(one)
            return
        self._is_draining = True
        self._worker.drain(self._drain_seconds)
        if number == signal.SIGINT:
            self._tell()

    def _tell(self) -> None:
        num_running = self._worker.num_running
        if num_running:
            rollouts = f"{num_running} rollout{'' if num_running == 1 else 's'}"
            said = f"waiting for {rollouts} to end, at most {self._drain_seconds:g} s; Ctrl-C again gives up sooner"
        else:
            said = "nothing runs; ending as soon as everything is stored"
        over_what_was_typed = "\r" if self._told.isatty() else ""
        self._told.write(f"{over_what_was_typed}agent-layer: {said}\n")
        self._told.flush()


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
            ShutdownSignals(worker, settings.work_drain_seconds).listen()
            print_started(worker, options.agent, options.slots, options.run)
            await worker.work()
            print_ended(worker)
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
    gateway = Session(settings=settings, sink=recorder).gateway
    if gateway is None:
        raise BadInputError(
            "work: expected the address of a gateway in AGENT_LAYER_GATEWAY_URL, found none;"
            " start one with 'agent-layer up', which prints it"
        )
    store = open_store(settings)
    keys = Keys(settings.namespace)
    queue = Queue(store.redis, keys, settings)
    count = partial(count_calls, store.redis, store.keys)
    shelf = CheckpointStore(keys=keys, objects=store.objects, note=queue.checkpoint, pool=pool)
    recorder.attend()
    tracer.init(settings)
    place = WorkerContext(
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
        sealing=StoredWaiter(count, recorder.is_settled, pool, poll_seconds=settings.ship_poll_seconds),
        pool=pool,
        scoring=scoring,
        gate=StartLimiter(settings.max_starts),
        shelf=shelf if options.is_resumable or is_resumable(target) else None,
    )
    return Worker(
        queue,
        place,
        slots=options.slots,
        capabilities=sorted(options.needs | {f"agent:{options.agent}", f"env:{options.agent}"}),
        run=options.run,
    )
