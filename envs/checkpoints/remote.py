"""This file holds the keeper in a process of agents: what is saved there goes to the worker, which stores it.

So an agent's process needs neither the object store nor Redis, nor any key but its rollouts'.
"""

import asyncio
from collections.abc import Callable
from itertools import count

from agent_layer.errors import LeaseLostError


class RemoteCheckpointer:
    """Keeps what one attempt saves, by asking whoever holds it; see ``tracer.core.rollout_handle.Keeper``.

    Args:
        send: takes the number of a save and the state.
        on_paused: called when the attempt has come to where it pauses; whoever runs the agent ends it.
    """

    def __init__(self, send: Callable[[int, bytes], None], on_paused: Callable[[], None]) -> None:
        self._send = send
        self._on_paused = on_paused
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[bool]] = {}

    async def keep(self, state: bytes) -> bool:
        """See Keeper."""
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._send(number, state)
            return await answer
        finally:
            del self._waiting[number]

    def hear(self, number: int, *, is_pausing: bool, error: str | None) -> None:
        """Take the answer to a save."""
        answer = self._waiting.get(number)
        if answer is None or answer.done():
            return
        if error is None:
            answer.set_result(is_pausing)
        else:
            answer.set_exception(LeaseLostError(error))

    async def stay_paused(self) -> object:
        """See Keeper."""
        self._on_paused()
        return await asyncio.get_running_loop().create_future()
