"""This file holds what all attempts of a worker share, and how one is opened and closed at the gateway."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, TypeVar

from agent_layer.dispatcher import Lease
from agent_layer.errors import AgentLayerError, NotFoundError, NotWholeError, UnreachableError
from agent_layer.recorder import Recorder
from agent_layer.schema.gateway import OpenRequest, start_of
from agent_layer.schema.task import RewardSpec, Split
from agent_layer.settings import Settings
from agent_layer.store import Store
from agent_layer.store.sealing import check_trainable
from envs.sealing import SealWatch
from envs.targets import Target
from tracer import Rollout
from tracer.gateway import GatewayClient

__all__ = ["Workplace", "close_attempt", "open_attempt", "renew_keys"]

P = ParamSpec("P")
T = TypeVar("T")

_SCORERS_AT_ONCE = 16

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """Where attempts are done: the agent, and the parts of the layer that it meets."""

    settings: Settings
    worker: str
    """Name of the worker, as leases show it."""
    target: Target
    agent: str
    """Name of the target, for tasks that name no agent."""
    scorer: str
    """Name of the scorer, for tasks that name none."""
    env: str | None
    """Name of the environment that is the target, for tasks that name none; None: the target is no environment."""
    env_version: str | None
    """Version of the environment that the target is or declares; None: not known."""
    gateway: GatewayClient
    recorder: Recorder
    store: Store
    sealing: SealWatch
    pool: Executor
    scoring: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_SCORERS_AT_ONCE))

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what would block in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, partial(function, *args, **kwargs))


def renew_keys(place: Workplace, trajectory_ids: Sequence[str]) -> None:
    """Let the keys of running attempts hold as long as their leases do."""
    try:
        place.gateway.renew(trajectory_ids, place.settings.lease_seconds)
    except AgentLayerError as error:
        _log.warning("keys are not renewed error=%s", error)


def open_attempt(place: Workplace, lease: Lease, rewards: dict[str, RewardSpec]) -> Rollout:
    """Record the beginning of an attempt, then ask the gateway for its address.

    Raises: UnreachableError, BadInputError: the gateway does not answer, or refuses.
    """
    task = lease.task
    request = OpenRequest(
        task_id=task.id,
        task_type=task.task_type,
        run=task.run,
        split=task.split,
        rollout_id=lease.rollout_id,
        attempt=lease.attempt,
        group_id=lease.group_id,
        agent=task.agent or place.agent,
        labels=task.labels,
        limits=task.limits,
        sampling=task.sampling,
        rewards=rewards,
        env=task.env or place.env,
        env_version=place.env_version,
        owner="worker",
        lease_seconds=place.settings.lease_seconds,
    )
    log = place.recorder.append(
        start_of(request, rollout_id=lease.rollout_id, run=task.run, at=time.time(), worker=place.worker, task=task)
    )
    if lease.attempt > 0:
        with suppress(NotFoundError, UnreachableError):  # whatever is left of the attempt before may call no more
            place.gateway.close(lease.rollout_id, lease.attempt - 1)
    rollout = Rollout.of(place.gateway.open(request), run=task.run, sink=place.recorder)
    rollout.logs.add(log)
    return rollout


def close_attempt(place: Workplace, rollout: Rollout, split: Split) -> int:
    """Let the gateway take no more calls of an attempt; give the number of those that it took.

    Raises:
        CaptureError: it is to be trained on and holds answers without tokens.
        UnreachableError, NotFoundError: the gateway is gone, or was started anew.
        NotWholeError: a call has begun and not ended.
    """
    closed = place.gateway.close(rollout.rollout_id, rollout.attempt)
    if closed.started != closed.ended:
        raise NotWholeError(
            f"attempt {rollout.trajectory_id}: expected all {closed.started} calls to have ended, found {closed.ended};"
            " the attempt is run again"
        )
    check_trainable(closed, split)
    return closed.started
