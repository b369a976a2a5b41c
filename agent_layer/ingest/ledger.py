"""This file holds how logs of other machines are kept until they are committed: in one log of this machine's own.

What arrives within ``ingest_roll_seconds`` from anywhere stands in the same log, and so becomes one segment,
which the
shipper of this machine stores and commits as any other. Dying changes nothing: the sender still has its log,
and the
next shipper has this one.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from agent_layer.ingest.grouping import BoundedMap
from agent_layer.schema import content_hash

_POLL_SECONDS = 0.01


class OwnLog(Protocol):
    """Where records of others are kept; the recorder is one."""

    def append_encoded(self, contents: Sequence[bytes]) -> str:
        """Keep records, safe from the death of this process; return the name of the log that holds them."""
        ...

    def has_room(self) -> bool:
        """Whether it may grow."""
        ...

    def is_settled(self, log_name: str) -> bool:
        """Whether all records of a log are committed."""
        ...

    def is_set_aside(self, log_name: str) -> bool:
        """Whether a log will never be committed, because it was damaged here."""
        ...


class IngestLedger:
    """Keeps each log once, however often it is sent, and says when it is committed.

    A log that is sent again after a restart is kept twice, which changes nothing but the space that it takes.
    """

    def __init__(self, log: OwnLog) -> None:
        self._log = log
        self._turn = asyncio.Lock()  # also makes one of two copies that come at once
        self._kept: BoundedMap[tuple[str, str], str] = BoundedMap()
        """Our log that holds one of others, by the name and the hash of that; one that was mended keeps its name."""
        self._awaited: dict[str, asyncio.Future[bool]] = {}
        self._is_awaited = asyncio.Event()

    async def append_log(self, name: str, body: bytes, read: Callable[[bytes], Sequence[bytes]]) -> str:
        """Keep a log; return the name of our log that holds it.

        Args:
            name: of the log.
            body: as it was sent.
            read: gives its records. One body is read at a time: it may become much longer than it is.

        Raises:
            BadInputError: ``read`` says that it is no log.
            BackPressureError: there is no room for it.
        """
        async with self._turn:
            identity = name, await asyncio.to_thread(content_hash, body)
            own = self._kept.get(identity)
            if own is None or self._log.is_set_aside(own):
                own = await asyncio.to_thread(lambda: self._log.append_encoded(read(body)))
                self._kept.set(identity, own)
            return own

    async def wait_committed(self, own: str, limit_seconds: float) -> bool:
        """Wait until what one of our logs holds is committed; False: it is not so far."""
        if self._log.is_settled(own):
            return True
        committed = self._awaited.setdefault(own, asyncio.get_running_loop().create_future())
        self._is_awaited.set()
        done, _ = await asyncio.wait([committed], timeout=limit_seconds)
        return any(future.result() for future in done)

    async def watch(self) -> None:
        """Look after what is waited for, as long as this task lives."""
        while True:
            await self._is_awaited.wait()
            for own in list(self._awaited):
                if (is_settled := self._log.is_settled(own)) or self._log.is_set_aside(own):
                    self._awaited.pop(own).set_result(is_settled)
            if not self._awaited:
                self._is_awaited.clear()
            await asyncio.sleep(_POLL_SECONDS)
