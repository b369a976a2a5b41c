"""Route for logs of other machines, POST /v1/logs/NAMESPACE/NAME, and the checks on them.

The body has the frames of a log file, plain or packed by zstd (``application/zstd``). 200: every record is committed.
400: the log is damaged or not a log, and never will be accepted. After any other answer the sender keeps its log and
sends it again, which is always safe.
"""

import asyncio
import re
from collections.abc import AsyncIterator

from aiohttp import hdrs, web

from agent_layer.errors import BackPressureError, BadInputError, CorruptRecordError
from agent_layer.ingest.http import REFUSALS, IngestKeys, IngestMemory, describe_refusal, read_body, unpack
from agent_layer.ingest.ledger import IngestLedger, OwnLog
from agent_layer.ingest.times import check_times
from agent_layer.recorder import read_frames
from agent_layer.settings import Settings
from agent_layer.shipper import read_log_record

_NAME = re.compile(r"[0-9abcdefghjkmnpqrstvwxyz]{26}-[\w-]{1,80}")
_PACKED = "application/zstd"
_RETRY_SECONDS = "1"


class LogReceiver:
    """Receives the logs of one namespace."""

    def __init__(self, settings: Settings, access: IngestKeys, memory: IngestMemory, log: OwnLog) -> None:
        self._settings = settings
        self._access = access
        self._memory = memory
        self._log = log
        self._ledger = IngestLedger(log)

    async def watch_commits(self, _: web.Application) -> AsyncIterator[None]:
        """Run the ledger's background task while the application runs."""
        watch = asyncio.create_task(self._ledger.watch())
        yield
        watch.cancel()
        await asyncio.wait([watch])

    async def receive(self, request: web.Request) -> web.Response:
        """Store one log, and answer once it is committed."""
        name = request.match_info["name"]
        if (refusal := self._check_request(request)) is not None:
            return refusal
        try:
            own = await self._keep(name, request)
        except REFUSALS as error:
            return _refuse(*describe_refusal(error, f"log {name}", self._settings.max_body_bytes), name)
        limit_seconds = self._settings.ingest_seconds
        if await self._ledger.wait_committed(own, limit_seconds):
            return web.json_response({"log": name})
        return _refuse(503, f"log {name}: kept, but not committed within {limit_seconds:g} s; see shipper.log", name)

    def _check_request(self, request: web.Request) -> web.Response | None:
        """Refuse requests without a valid key or for another namespace."""
        name = request.match_info["name"]
        if not self._access.is_allowed(request):
            return _refuse(401, "ingest: this key is not known; use AGENT_LAYER_INGEST_KEY", name)
        if request.match_info["namespace"] != self._settings.namespace:
            return _refuse(404, f"ingest: expected logs of namespace {self._settings.namespace!r} only", name)
        return None

    async def _keep(self, name: str, request: web.Request) -> str:
        if not _NAME.fullmatch(name):
            raise BadInputError(f"log {name!r}: expected the name of a log, found none; check what was sent")
        if not self._log.has_room():
            raise BackPressureError("ingest: expected room for another log, found none; send it again later")
        is_packed, subject, longest = request.content_type == _PACKED, f"log {name}", self._settings.max_body_bytes
        with self._memory.hold() as held:
            body = await read_body(request, subject, held)
            return await self._ledger.append_log(
                name,
                body,
                lambda body: read_log(name, unpack(body, "zstd", subject, longest, held) if is_packed else body),
            )


def read_log(name: str, frames: bytes) -> list[bytes]:
    """Decode a log into its records, and check that each can be read and indexed.

    Raises: BadInputError: it has no records, or other content.
    """
    contents, num_torn = read_frames(frames)
    if num_torn or not contents:
        raise BadInputError(
            f"log {name}: expected whole frames with their checksums, found {len(contents)} and then {num_torn} bytes"
            " that are none; it is damaged, see the log itself"
        )
    for content in contents:
        try:
            check_times(read_log_record(content))
        except (CorruptRecordError, BadInputError) as error:
            raise BadInputError(f"log {name}: {error}") from error
    return contents


def _refuse(status: int, reason: str, name: str) -> web.Response:
    headers = {hdrs.RETRY_AFTER: _RETRY_SECONDS} if status == 503 else None
    return web.json_response({"error": reason, "log": name}, status=status, headers=headers)
