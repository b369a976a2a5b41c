"""Assembles a worker with its processes, and serves it until a signal.

The first SIGINT or SIGTERM drains the worker, the second returns running attempts to the queue, the third ends the
process as usual.
"""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TextIO

import msgspec

import tracer
from agent_layer.dispatcher import WorkerQueue
from agent_layer.errors import BadInputError
from agent_layer.infra import Keys, format_count, raise_file_limit
from agent_layer.recorder import open_recorder
from agent_layer.schema import new_id
from agent_layer.schema.sandbox import SandboxSpec
from agent_layer.settings import Settings
from agent_layer.state import count_calls
from agent_layer.store import open_store
from envs.agents import Target
from envs.checkpoints import CheckpointStore
from envs.commands import CommandTarget
from envs.hosts import HostTarget, make_hosts, make_scorers
from envs.progress import StartLimiter
from envs.resume import is_resumable
from envs.sandbox import SupervisorHandle
from envs.scorers import AGENT
from envs.worker.context import WorkerContext
from envs.worker.gateway_access import GatewayAccess
from envs.worker.sandbox_stage import SandboxStage
from envs.worker.scoring_stage import ScoringStage
from envs.worker.stored_waiter import StoredWaiter
from envs.worker.worker import Worker
from tracer import Session

_NUM_THREADS = 8
"""Threads for calls that block: opening and closing at the gateway, Redis, the store."""
_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class WorkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker runs."""

    agent: str
    """Name of the target; tasks may ask for it by ``agent`` or ``env``."""
    target: Target | None = None
    """Run in the worker's own process, such as a command; None: what ``agent`` names, run in a host."""
    is_isolated: bool = False
    """Each attempt has a process of its own; for targets that run in hosts."""
    is_resumable: bool = False
    """Whether saved states are stored; the host sets it for targets in hosts."""
    env: str | None = None
    """Name of the environment that the target is; None: it is none, or the host sets it."""
    env_version: str | None = None
    sandbox: SandboxSpec | None = None
    """Sandbox for tasks that ask for none; None: none, or the host sets it."""
    artifacts: Sequence[str] = ()
    """Artifacts for tasks that name none; the host sets them for targets in hosts."""
    slots: int = 16
    score_slots: int = 16
    """Scorers that run at the same time; they occupy no slot of the agents."""
    needs: frozenset[str] = frozenset()
    """Needs of tasks that this worker can meet."""
    scorer: str = AGENT
    """Scorer for tasks that name none."""
    run: str = ""
    """Only tasks of this run; empty: of any."""


async def serve_worker(settings: Settings, options: WorkOptions) -> None:
    """Work until SIGINT or SIGTERM; attempts may then run for ``work_drain_seconds``, or until a second signal.

    Raises:
        UnreachableError: Redis does not answer. AccessRefusedError: the gateway does not take the worker's key, or
            records into another namespace or store.
        BadInputError: no gateway is named, or the agent or scorer does not exist.
        SandboxError: the sandbox that the agent declares does not work here.
    """
    raise_file_limit()
    with ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="worker") as pool:
        async with open_worker(settings, options, pool) as worker:
            await worker.check_access()
            ShutdownSignals(worker, settings.work_drain_seconds).install()
            of_run = f" for run {options.run}" if options.run else ""
            _print(f"worker {worker.name} runs {options.agent}{of_run}, {options.slots} at a time; Ctrl-C drains it")
            await worker.work()
            _print(f"worker {worker.name} has ended: {_describe_endings(worker.endings)}")
        # a container ends with this process, so the records of attempts that it returned are shipped first
        await asyncio.to_thread(open_recorder(settings).flush, settings.stop_seconds)


@asynccontextmanager
async def open_worker(settings: Settings, options: WorkOptions, pool: ThreadPoolExecutor) -> AsyncGenerator[Worker]:
    """Start the processes of agents and scorers, and a worker that uses them; raises as ``serve_worker`` does.

    When the agent's process can no longer be started, the worker stops and the block ends with the error.
    """
    async with AsyncExitStack() as ended_with_it:
        scoring = ScoringStage(settings, options.score_slots, lambda: make_scorers(settings))
        ended_with_it.push_async_callback(scoring.close)
        if options.scorer != AGENT and (error := await scoring.check(options.scorer)) is not None:
            raise BadInputError(error)
        supervisor = SupervisorHandle(settings)
        ended_with_it.push_async_callback(supervisor.close)
        if options.target is not None:
            if isinstance(options.target, CommandTarget):
                ended_with_it.push_async_callback(options.target.close)
                if options.sandbox is not None:
                    await supervisor.require(options.sandbox)
            yield _make_worker(settings, options, pool, scoring, options.target, supervisor)
            return
        hosts = make_hosts(settings, options.agent, is_isolated=options.is_isolated)
        ended_with_it.push_async_callback(hosts.close)
        ready = await hosts.prepare()
        options = msgspec.structs.replace(
            options,
            env=ready.env,
            env_version=ready.env_version,
            is_resumable=ready.is_resumable,
            sandbox=ready.sandbox,
            artifacts=ready.artifacts,
        )
        if options.sandbox is not None:
            await supervisor.require(options.sandbox)
        target = HostTarget(hosts, settings.close_seconds)
        worker = _make_worker(settings, options, pool, scoring, target, supervisor)
        target.failed.add_done_callback(lambda _: worker.stop())
        yield worker
        if target.failed.done():
            raise target.failed.result()


def _make_worker(  # each with its own end
    settings: Settings,
    options: WorkOptions,
    pool: ThreadPoolExecutor,
    scoring: ScoringStage,
    target: Target,
    supervisor: SupervisorHandle,
) -> Worker:
    """Open what the worker needs; raises as ``serve_worker`` does."""
    recorder = open_recorder(settings)
    gateway = Session(settings=settings, sink=recorder).gateway
    if gateway is None:
        raise BadInputError(
            "work: no gateway is configured, AGENT_LAYER_GATEWAY_URL is empty;"
            " start one with 'agent-layer up', which prints its address"
        )
    store = open_store(settings)
    keys = Keys(settings.namespace)
    queue = WorkerQueue(store.redis, keys, settings)
    count = partial(count_calls, store.redis, store.keys)
    checkpoints = CheckpointStore(keys=keys, objects=store.objects, commit_name=queue.checkpoint, pool=pool)
    recorder.attend()
    tracer.init(settings)
    context = WorkerContext(
        settings=settings,
        worker=f"{settings.host}-{new_id()[-8:]}",
        target=target,
        agent=options.agent,
        scorer=options.scorer,
        env=options.env,
        env_version=options.env_version,
        gateway=gateway,
        access=GatewayAccess(settings, gateway, queue),
        recorder=recorder,
        store=store,
        stored_waiter=StoredWaiter(count, recorder.is_settled, pool, poll_seconds=settings.ship_poll_seconds),
        pool=pool,
        scoring=scoring,
        start_limiter=StartLimiter(settings.max_starts),
        sandboxes=SandboxStage(
            *(settings, supervisor, options.sandbox, options.artifacts),
            commands=target if isinstance(target, CommandTarget) else None,
        ),
        checkpoints=checkpoints if options.is_resumable or is_resumable(target) else None,
    )
    return Worker(
        queue,
        context,
        slots=options.slots,
        capabilities=sorted(options.needs | {f"agent:{options.agent}", f"env:{options.agent}"}),
        run=options.run,
    )


class ShutdownSignals:
    """Ends a worker by signals: the first drains it, the second stops it; the next one ends the process as usual.

    Args:
        worker: the worker that they end.
        drain_seconds: how long attempts may run after the first.
        output: where a person who pressed Ctrl-C reads what the worker waits for.
    """

    def __init__(self, worker: Worker, drain_seconds: float, output: TextIO = sys.stderr) -> None:
        self._worker = worker
        self._drain_seconds = drain_seconds
        self._output = output
        self._is_draining = False

    def install(self) -> None:
        """Handle signals from now on, in this loop's thread."""
        loop = asyncio.get_running_loop()
        for number in _ENDING_SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._is_draining:
            self._worker.stop()
            for one in _ENDING_SIGNALS:
                asyncio.get_running_loop().remove_signal_handler(one)
            return
        self._is_draining = True
        self._worker.drain(self._drain_seconds)
        if number == signal.SIGINT:
            self._print_wait()

    def _print_wait(self) -> None:
        num_running = self._worker.num_running
        if num_running:
            rollouts = format_count(num_running, "rollout")
            sentence = f"waiting for {rollouts} to end, at most {self._drain_seconds:g} s; Ctrl-C again gives up sooner"
        else:
            sentence = "nothing runs; ending as soon as everything is stored"
        over_what_was_typed = "\r" if self._output.isatty() else ""
        self._output.write(f"{over_what_was_typed}agent-layer: {sentence}\n")
        self._output.flush()


def _describe_endings(endings: Counter[str]) -> str:
    """Count endings as users see rollouts: an attempt that failed is retried, or was the last one."""
    named = {
        "completed": endings["completed"] + endings["truncated"],
        "failed": endings["retry"] + endings["dead"],
        "given back": endings["release"] + endings["pause"],
    }
    return ", ".join(f"{num:,} {name}" for name, num in named.items() if num) or "it ran nothing"


def _print(sentence: str) -> None:
    sys.stderr.write(f"agent-layer: {sentence}\n")
    sys.stderr.flush()
