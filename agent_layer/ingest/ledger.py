"""Ledger of logs from other machines: kept in this machine's own log until they are committed.

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
from agent_layer.ingest.http import run_in_thread
from agent_layer.schema import content_hash

_POLL_SECONDS = 0.01


class OwnLog(Protocol):
    """Storage for records of other machines; the recorder implements it."""

    def append_encoded(self, contents: Sequence[bytes]) -> str:
        """Append records, which survive the death of this process; return the log's name."""
        ...

    def has_room(self) -> bool:
        """Whether the log is below its quota."""
        ...

    def is_settled(self, log_name: str) -> bool:
        """Whether all records of a log are committed."""
        ...

    def is_set_aside(self, log_name: str) -> bool:
        """Whether a log was damaged here and will never be committed."""
        ...


class IngestLedger:
    """Keeps one copy of each log, however often it is sent, and reports when it is committed.

    A log sent again after a restart is kept twice, which only takes space.
    """

    def __init__(self, log: OwnLog) -> None:
        self._log = log
        self._turn = asyncio.Lock()  # two copies that arrive at once become one
        self._kept: BoundedMap[tuple[str, str], str] = BoundedMap()
        """Our log by (name, hash) of the sender's log; a repaired log keeps its name but changes its hash."""
        self._awaited: dict[str, asyncio.Future[bool]] = {}
        self._is_awaited = asyncio.Event()

    async def append_log(self, name: str, body: bytes, read: Callable[[bytes], Sequence[bytes]]) -> str:
        """Store a log; return the name of our log that contains it.

        Args:
            name: of the log.
            body: as it was sent.
            read: decodes its records, one body at a time, because a body may grow much when unpacked.

        Raises:
            BadInputError: ``read`` found no valid log.
            BackPressureError: there is no room for it.
        """
        async with self._turn:
            identity = name, await asyncio.to_thread(content_hash, body)
            own = self._kept.get(identity)
            if own is None or self._log.is_set_aside(own):
                own = await run_in_thread(lambda: self._log.append_encoded(read(body)))
                self._kept.set(identity, own)
            return own

    async def wait_committed(self, own: str, limit_seconds: float) -> bool:
        """Wait until one of our logs is committed; False if the wait ended before that."""
        if self._log.is_settled(own):
            return True
        committed = self._awaited.setdefault(own, asyncio.get_running_loop().create_future())
        self._is_awaited.set()
        done, _ = await asyncio.wait([committed], timeout=limit_seconds)
        return any(future.result() for future in done)

    async def watch(self) -> None:
        """Check the awaited logs until cancelled."""
        while True:
            await self._is_awaited.wait()
            for own in list(self._awaited):
                if (is_settled := self._log.is_settled(own)) or self._log.is_set_aside(own):
                    self._awaited.pop(own).set_result(is_settled)
            if not self._awaited:
                self._is_awaited.clear()
            await asyncio.sleep(_POLL_SECONDS)
