"""Disconnect watcher: cancels calls whose client hung up, so that no engine samples for a closed connection.

A web handler does not learn that its client left while it waits for an engine. So the connections are polled.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from agent_layer.gateway.calls.client import Client
from agent_layer.gateway.rollouts.retries import Call

_Task: TypeAlias = asyncio.Task[object]


@dataclass(slots=True, eq=False)
class WatchedClient:
    """The client of one request."""

    client: Client
    call: Call | None = None
    """Goes on without this client while other clients have joined it; None: the request is no call of its own."""

    @property
    def is_gone(self) -> bool:
        """Whether it hung up, and no other client waits for its call."""
        return self.client.is_gone and not (self.call and self.call.num_joined)


@dataclass(slots=True)
class DisconnectWatcher:
    """Polls the connections of all running calls."""

    seconds: float = 0.1
    """Between polls."""
    _clients: dict[_Task, WatchedClient] = field(default_factory=dict[_Task, WatchedClient])

    @contextmanager
    def watch(self, client: Client) -> Generator[WatchedClient]:
        """Cancel scope: cancels the current task when the client hangs up inside the block."""
        watched = WatchedClient(client)
        if (task := asyncio.current_task()) is None:
            yield watched
            return
        self._clients[task] = watched
        try:
            yield watched
        finally:
            del self._clients[task]

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await asyncio.sleep(self.seconds)
            for task, client in list(self._clients.items()):
                if client.is_gone:
                    task.cancel()
