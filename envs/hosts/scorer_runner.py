"""Runner of a scorer process."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack

from redis.exceptions import RedisError

from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.schema.sandbox import Sandbox, SandboxSpec, Snapshot
from agent_layer.settings import load_settings
from agent_layer.store import Store, open_store
from envs.channel import Channel
from envs.grading import JudgeCalls, Scorer, ScoringRun, TakeBox
from envs.hosts.protocol import Begin, Check, Checked, Judge, Ready, ScoredAttempt, Started, ToHost
from envs.sandbox import SandboxConnection, connect_sandbox
from envs.scorers import declared_rewards, load_scorer, null_rewards, run_scorer
from tracer.transport import GatewayClient, connect_gateway


def load_scorer_runner(begin: Begin) -> tuple[Ready, Callable[[], "ScorerRunner"] | None]:
    """Open the store; return the answer to the worker, and what makes the runner."""
    sys.path[:] = begin.path
    try:
        settings = load_settings(**begin.settings)
        store = open_store(settings)
        gateway = connect_gateway(settings.gateway_urls, settings.api_key) if settings.gateway_urls else None
    except AgentLayerError as error:
        return Ready(error=str(error)), None
    return Ready(), lambda: ScorerRunner(store, gateway)


class ScorerRunner:
    """Scores stored trajectories side by side, each read from the store."""

    def __init__(self, store: Store, gateway: GatewayClient | None) -> None:
        self._store = store
        self._gateway = gateway
        self._channel: Channel[ToHost] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def attach(self, channel: Channel[ToHost]) -> None:
        """Answer over this channel."""
        self._channel = channel

    def on_message(self, message: ToHost) -> None:
        """Carry out a request of the worker."""
        match message:
            case Check():
                self._send(_check(message))
            case Judge():
                task = asyncio.create_task(self._score(message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case _:
                return

    async def report_activity(self) -> None:
        """Return at once: scorers report nothing but answers."""

    async def _score(self, request: Judge) -> None:
        task, trajectory_id = request.task, request.trajectory_id
        try:
            scorer = load_scorer(request.scorer)
        except BadInputError as error:  # it passed the check before
            names = declared_rewards(task, request.scorer)
            rewards = null_rewards(task, trajectory_id, names, "verifier_error", str(error))
            self._send(ScoredAttempt(token=request.token, rewards=rewards))
            return
        assert scorer is not None
        try:
            trajectory = await asyncio.to_thread(self._store.get, trajectory_id)
        except (AgentLayerError, RedisError, OSError) as error:
            self._send(ScoredAttempt(token=request.token, error=f"{type(error).__name__}: {error}"))
            return
        self._send(Started(token=request.token))
        async with AsyncExitStack() as ended_with_it:
            judge = None
            if self._gateway is not None:
                judge = JudgeCalls(
                    self._gateway,
                    run=task.run,
                    trajectory_id=trajectory_id,
                    task_id=task.id,
                    seconds=request.seconds,
                )
                ended_with_it.push_async_callback(judge.close)
            run = ScoringRun(
                task,
                trajectory,
                request.result,
                artifacts=None if request.artifacts is None else Snapshot(archive=request.artifacts),
                take_box=None if request.sandbox is None else _take_boxes(request.sandbox, ended_with_it),
                ask_judge=None if judge is None else judge.ask,
            )
            rewards = await run_scorer(scorer, run, request.seconds, request.scorer)
        self._send(ScoredAttempt(token=request.token, rewards=rewards))

    def _send(self, message: Checked | Started | ScoredAttempt) -> None:
        if self._channel is not None:
            self._channel.send(message)


def _take_boxes(address: str, ended_with_it: AsyncExitStack) -> TakeBox:
    """Return what takes fresh boxes of the worker's supervisor; the first box opens the connection."""
    opening = asyncio.Lock()
    connection: SandboxConnection | None = None

    async def take_box(spec: SandboxSpec | None) -> Sandbox:
        nonlocal connection
        async with opening:
            if connection is None:
                connection = await ended_with_it.enter_async_context(connect_sandbox(address))
        return await connection.take(spec)

    return take_box


def _check(message: Check) -> Checked:
    """Load a scorer."""
    try:
        scorer = load_scorer(message.scorer)
    except BadInputError as error:
        return Checked(token=message.token, error=str(error))
    return Checked(token=message.token, takes_boxes=isinstance(scorer, Scorer))
