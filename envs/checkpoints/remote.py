"""Checkpointer in an agent's process: sends saved states to the worker, which stores them.

So an agent's process needs neither the object store nor Redis, and no key but its rollouts'.
"""

import asyncio
from collections.abc import Callable
from itertools import count

from agent_layer.errors import LeaseLostError


class RemoteCheckpointer:
    """Sends the states that one attempt saves to its worker.

    Args:
        send: receives the number of a save and the state.
        on_paused: called at the boundary at which the attempt pauses; it ends the agent's run.
    """

    def __init__(self, send: Callable[[int, bytes], None], on_paused: Callable[[], None]) -> None:
        self._send = send
        self._on_paused = on_paused
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[bool]] = {}

    async def keep(self, state: bytes) -> bool:
        """See the protocol of ``Rollout.keeper``."""
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._send(number, state)
            return await answer
        finally:
            del self._waiting[number]

    def on_saved(self, number: int, *, is_pausing: bool, error: str | None) -> None:
        """Receive the worker's answer to a save."""
        answer = self._waiting.get(number)
        if answer is None or answer.done():
            return
        if error is None:
            answer.set_result(is_pausing)
        else:
            answer.set_exception(LeaseLostError(error))

    async def stay_paused(self) -> object:
        """See the protocol of ``Rollout.keeper``."""
        self._on_paused()
        return await asyncio.get_running_loop().create_future()
