"""This file holds the process that requests share: started when it is first needed, and again when it has died."""

import asyncio

from envs.host.channel import connect
from envs.host.hosts import FROM_HOST, Host
from envs.host.launching import Launcher
from envs.host.messages import Ready
from envs.host.spawning import Spawned, describe_death

__all__ = ["SharedHost"]

_END_SECONDS = 5.0
"""For a process that is not needed any more to end by itself."""


class SharedHost:
    """One process for all requests.

    Args:
        name: what runs there, for errors.
        launcher: starts it.
    """

    def __init__(self, name: str, launcher: Launcher) -> None:
        self._name = name
        self._launcher = launcher
        self._host: Host | None = None
        self._spawned: Spawned | None = None
        self._starting = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._ready = Ready()

    async def take(self) -> Host:
        """Give the process, started if need be.

        Raises: BadInputError: it cannot be.
        """
        async with self._starting:
            if self._host is None or self._host.is_dead:
                await self._start()
            assert self._host is not None
            return self._host

    async def prepare(self) -> Ready:
        """Start the process, and give what it says of what it loaded; raises as ``take`` does."""
        await self.take()
        return self._ready

    async def give_back(self, host: Host) -> None:
        """It is not needed for this request any more."""

    async def close(self) -> None:
        """End the process."""
        if self._watching is not None and self._host is not None and self._spawned is not None:
            self._host.hang_up()
            await self._spawned.end_within(_END_SECONDS)
            await self._watching

    async def _start(self) -> None:
        if self._watching is not None:
            await self._watching
        spawned, self._ready = await self._launcher.launch()
        host = Host(self._name, spawned.kill)
        host.speak(await connect(spawned.end, FROM_HOST, host.hear))
        self._host, self._spawned = host, spawned
        self._watching = asyncio.create_task(self._watch(host, spawned))

    async def _watch(self, host: Host, spawned: Spawned) -> None:
        exit_code = await spawned.wait()
        spawned.kill()
        self._launcher.note_death()
        host.die_when_silent(describe_death(exit_code))
