"""Keeper of an attempt's states, as a worker's would be."""

import asyncio

import pytest


class MemoryKeeper:
    """Keeps every state; asks the attempt to pause after ``pauses_after`` of them."""

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
