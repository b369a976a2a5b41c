"""This file holds how a process of users' code is brought up: told what to load, waited for, started again in time."""

import asyncio
import time
from collections.abc import Mapping

import msgspec

from agent_layer.errors import BadInputError
from envs.host.channel import hear_first, say
from envs.host.messages import LONGEST_PACKET, Begin, Ready
from envs.host.spawning import Kind, Spawned, describe_death, spawn

__all__ = ["Launcher"]

_MOST_DEATHS = 3
"""So often in a row a process may die before it is ready."""
_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS = 0.1, 10.0
"""Before a process is started again that died young; doubled each time in a row."""
_YOUNG_SECONDS = 10.0
_END_SECONDS = 1.0
"""For a process to end by itself that has said that it cannot load what it is to."""


class Launcher:
    """Starts processes of one kind, one at a time.

    Args:
        name: what runs there, for errors.
        kind: what they are to do.
        variables: the whole of their environment.
        begin: what they are told first.
        start_seconds: longest start.
    """

    def __init__(self, name: str, kind: Kind, variables: Mapping[str, str], begin: Begin, start_seconds: float) -> None:
        self._name = name
        self._kind: Kind = kind
        self._variables = variables
        self._begin = begin
        self._start_seconds = start_seconds
        self._num_young_deaths = 0
        self._ready_at = 0.0

    async def launch(self) -> tuple[Spawned, Ready]:
        """Start a process and wait until it is ready; after deaths, not at once.

        Raises: BadInputError: what it is to load is not there, takes too long, or ends the process again and again.
        """
        how = ""
        for _ in range(_MOST_DEATHS):
            await asyncio.sleep(self._delay_seconds)
            spawned = await spawn(self._kind, self._variables)
            try:
                answer = await self._answer(spawned)
            except BaseException:
                spawned.end.close()
                spawned.kill()
                raise
            if answer is not None:
                return spawned, answer
            spawned.end.close()
            how = describe_death(await spawned.wait())
            self.note_death()
        raise BadInputError(
            f"{self._name}: expected its process to load it, but {how} {_MOST_DEATHS} times before it was ready;"
            " import it by hand to see why"
        )

    def note_death(self) -> None:
        """A process that was launched has died unasked."""
        is_young = time.monotonic() < self._ready_at + _YOUNG_SECONDS
        self._num_young_deaths = self._num_young_deaths + 1 if is_young else 0

    @property
    def _delay_seconds(self) -> float:
        if not self._num_young_deaths:
            return 0.0
        return min(_LONGEST_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2 ** (self._num_young_deaths - 1))

    async def _answer(self, spawned: Spawned) -> Ready | None:
        try:
            async with asyncio.timeout(self._start_seconds):
                return await self._ask(spawned)
        except TimeoutError as error:
            raise BadInputError(
                f"{self._name}: expected its process to load it within {self._start_seconds:g} s, found it still"
                " loading; import it by hand to see why, or raise AGENT_LAYER_START_SECONDS"
            ) from error

    async def _ask(self, spawned: Spawned) -> Ready | None:
        """Tell it what to load; None: it died of that."""
        self._ready_at = time.monotonic()
        try:
            if self._kind == "zygote":
                spawned.end.send(msgspec.msgpack.encode(self._begin))
            else:
                say(spawned.end, self._begin)
            spawned.end.settimeout(0.0)
            answer = await self._read(spawned)
        except (ConnectionError, EOFError):
            return None
        if answer.error is not None:
            spawned.end.close()
            await spawned.end_within(_END_SECONDS)  # threads that it began go on
            raise BadInputError(answer.error)
        self._ready_at = time.monotonic()
        return answer

    async def _read(self, spawned: Spawned) -> Ready:
        if self._kind != "zygote":
            return await hear_first(spawned.end, Ready)
        packet = await asyncio.get_running_loop().sock_recv(spawned.end, LONGEST_PACKET)  # a message there is a packet
        if not packet:
            raise EOFError
        return msgspec.msgpack.decode(packet, type=Ready)
