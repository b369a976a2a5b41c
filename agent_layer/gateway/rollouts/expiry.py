"""Background task that expires rollouts whose key was not renewed."""

import asyncio
from typing import Final

from agent_layer.gateway.rollouts.finalize import Finalizer
from agent_layer.gateway.rollouts.registry import Lapse, RolloutRegistry
from agent_layer.gateway.rollouts.resume import AttemptResumption

_LOOK_SECONDS = 0.5


_WHY: Final[dict[Lapse, str]] = {
    "idle": "no call and no request named the rollout for idle_seconds",
    "expired": "its key was not renewed in time: the client that opened the rollout is gone",
    "forgotten": "it was paused, and no worker resumed it for paused_seconds",
}


async def reap_expired(rollouts: RolloutRegistry, finalizer: Finalizer, resumption: AttemptResumption) -> None:
    """Expire rollouts until cancelled. One with a checkpoint is paused, so that another holder can resume it.

    While the log is full no rollout expires, because its end must be recorded.
    """
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        for rollout, lapse in list(rollouts.expired()):
            if rollout.lease.has_checkpoint and lapse != "forgotten":
                await resumption.pause(rollout)
            elif finalizer.log.has_room():
                await finalizer.abort(rollout, _WHY[lapse])


async def abort_all(rollouts: RolloutRegistry, finalizer: Finalizer) -> None:
    """End all open rollouts, because this process ends, and no other gateway knows them."""
    for rollout in rollouts.live:
        if finalizer.log.has_room():
            await finalizer.abort(rollout, "the gateway was stopped")
