"""What all attempts of one worker share."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

import msgspec

from agent_layer.dispatcher import Lease
from agent_layer.recorder import Recorder
from agent_layer.settings import Settings
from agent_layer.store import Store
from envs.agents import Target
from envs.checkpoints import CheckpointStore
from envs.progress import StartLimiter
from envs.worker.gateway_access import GatewayAccess
from envs.worker.sandbox_stage import SandboxStage
from envs.worker.scoring_stage import ScoringStage
from envs.worker.stored_waiter import StoredWaiter
from tracer.transport import GatewayClient

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class WorkerContext:
    """The agent, and the parts of the layer that its attempts use."""

    settings: Settings
    worker: str
    """Name of the worker, as leases show it."""
    target: Target
    agent: str
    """Name of the target, for tasks that name no agent."""
    scorer: str
    """Name of the scorer, for tasks that name none."""
    env: str | None
    """Name of the environment that the target is, for tasks that name none; None: the target is no environment."""
    env_version: str | None
    """Version of the environment that the target is or declares; None: not known."""
    gateway: GatewayClient
    access: GatewayAccess
    recorder: Recorder
    store: Store
    stored_waiter: StoredWaiter
    pool: Executor
    """Threads for calls that block."""
    scoring: ScoringStage
    start_limiter: StartLimiter
    sandboxes: SandboxStage
    checkpoints: CheckpointStore | None = None
    """Where saved states are stored; None: the target is not resumable."""

    def complete_lease(self, lease: Lease) -> Lease:
        """Return the lease with a task that names all that its agent needs."""
        commands = self.sandboxes.commands
        return lease if commands is None else msgspec.structs.replace(lease, task=commands.complete_task(lease.task))

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, partial(function, *args, **kwargs))
