"""This file holds how a call ends when its client hangs up: what nobody waits for is not sampled on.

A web handler is not told that its client left while it waits for an engine, so the connections are looked at.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from aiohttp import web

from agent_layer.gateway.rollouts import Call

_Task: TypeAlias = asyncio.Task[object]


@dataclass(slots=True)
class DisconnectWatcher:
    """Looks after the connections of all calls that run, and cancels those whose client left."""

    seconds: float = 0.1
    """Between looks."""
    _clients: dict[_Task, web.Request] = field(default_factory=dict[_Task, web.Request])
    _calls: dict[_Task, Call] = field(default_factory=dict[_Task, Call])

    @contextmanager
    def watch(self, http: web.Request) -> Generator[None]:
        """Cancel the current task when this client hangs up inside the block."""
        if (task := asyncio.current_task()) is None:
            yield
            return
        self._clients[task] = http
        try:
            yield
        finally:
            del self._clients[task]
            self._calls.pop(task, None)

    def note(self, call: Call) -> None:
        """Say which call the current task makes: it goes on for whoever joined it."""
        if task := asyncio.current_task():
            self._calls[task] = call

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(self.seconds)
            for task, http in list(self._clients.items()):
                call = self._calls.get(task)
                if http.transport is None and not (call and call.num_joined):
                    task.cancel()
