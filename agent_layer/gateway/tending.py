"""This file holds what a gateway does by itself: it gives up rollouts whose openers are gone."""

import asyncio
from typing import Final

from agent_layer.gateway.registry import Lapse, Rollouts
from agent_layer.gateway.sealing import Sealer

__all__ = ["give_up_all", "tend"]

_LOOK_SECONDS = 0.5
_WHY: Final[dict[Lapse, str]] = {
    "idle": "nobody called the model or asked after the rollout for idle_seconds",
    "expired": "its key was not renewed in time: whoever opened the rollout is gone",
}


async def tend(rollouts: Rollouts, sealer: Sealer) -> None:
    """Give up what has lapsed, until cancelled. While the log is full nothing is, because its end must be recorded."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        for rollout, lapse in list(rollouts.lapsed()):
            if sealer.log.has_room():
                await sealer.give_up(rollout, _WHY[lapse])


async def give_up_all(rollouts: Rollouts, sealer: Sealer) -> None:
    """End everything that is open, because this process ends: no other gateway knows of it."""
    for rollout in rollouts.live:
        if sealer.log.has_room():
            await sealer.give_up(rollout, "the gateway was stopped")
