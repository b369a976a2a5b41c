"""Background task that expires rollouts whose key was not renewed."""

import asyncio
from typing import Final

from agent_layer.gateway.rollouts.finalize import Finalizer
from agent_layer.gateway.rollouts.registry import Lapse, RolloutRegistry
from agent_layer.gateway.rollouts.resume import AttemptResumption

_LOOK_SECONDS = 0.5


_WHY: Final[dict[Lapse, str]] = {
    "idle": "nobody called the model or asked after the rollout for idle_seconds",
    "expired": "its key was not renewed in time: whoever opened the rollout is gone",
    "forgotten": "it was paused, and nobody went on with it for paused_seconds",
}


async def reap_expired(rollouts: RolloutRegistry, finalizer: Finalizer, resumption: AttemptResumption) -> None:
    """Look after what has lapsed, until cancelled: where there is a checkpoint, another holder may go on with it.

    While the log is full nothing is given up, because its end must be recorded.
    """
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        for rollout, lapse in list(rollouts.lapsed()):
            if rollout.is_marked and lapse != "forgotten":
                await resumption.pause(rollout)
            elif finalizer.log.has_room():
                await finalizer.give_up(rollout, _WHY[lapse])


async def abort_all(rollouts: RolloutRegistry, finalizer: Finalizer) -> None:
    """End everything that is open, because this process ends: no other gateway knows of it."""
    for rollout in rollouts.live:
        if finalizer.log.has_room():
            await finalizer.give_up(rollout, "the gateway was stopped")
