"""This file holds keepers as a worker's would be, and rollouts that save to them."""

import asyncio

import pytest

from tracer import Rollout
from tracer.testing import Captured


class MemoryKeeper:
    """Keeps every state; asks the attempt to pause after so many."""

    def __init__(self, pauses_after=None):
        self.states = []
        self.pauses_after = pauses_after
        self.paused = asyncio.Event()

    async def keep(self, state):
        self.states.append(state)
        return len(self.states) == self.pauses_after

    async def stay_paused(self):
        self.paused.set()
        await asyncio.get_running_loop().create_future()


@pytest.fixture
def keeper():
    """``keeper(pauses_after=None)``: one in memory."""
    return MemoryKeeper


@pytest.fixture
def rollout_with():
    """``rollout_with(keeper, kept=None)``: an attempt whose states go there."""

    def make(keeper, kept=None):
        own = {"trajectory_id": "t-0", "rollout_id": "t", "attempt": 0, "run": "r"}
        return Rollout(**own, sink=Captured(), keeper=keeper, kept=kept)

    return make
