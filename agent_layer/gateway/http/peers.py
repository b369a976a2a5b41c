"""Several gateway processes on one machine: which of them owns a rollout, and how a request reaches the owner.

Each process listens at its own port, which the addresses of its rollouts name, and all of them at a shared one. The
owner of a rollout follows from its id: no lookup is needed, and a restarted process owns the same rollouts.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar
from zlib import crc32

import msgspec
from aiohttp import ClientConnectorError, ClientError, ClientResponse, ClientSession, ClientTimeout, hdrs, web

from agent_layer.errors import UnreachableError
from agent_layer.gateway.calls.client import HttpClient
from agent_layer.gateway.calls.disconnects import DisconnectWatcher
from agent_layer.gateway.calls.requests import read_text
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.gateway.http.errors import as_json
from agent_layer.schema import (
    OPEN_ROLLOUT,
    RENEW_ROLLOUTS,
    ROLLOUT_HEADER,
    UNREADABLE,
    RenewedRollouts,
    RenewRequest,
    new_id,
)

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

B = TypeVar("B", bound=msgspec.Struct)

_PASSED_ON: Final = "x-agent-layer-passed-on"
_HOP: Final = frozenset({"connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"})
_READ: Final = _HOP | {"content-encoding"}
"""Headers that no longer describe a body after it was read and decompressed."""
_RETRY_SECONDS = 0.1


class _Opening(msgspec.Struct):
    rollout_id: str | None = None


def owner_slot(rollout_id: str, num_processes: int) -> int:
    """Slot of the process that has a rollout and all of its attempts."""
    return crc32(rollout_id.encode("utf-8", "surrogateescape")) % num_processes


@dataclass(frozen=True, kw_only=True)
class PeerProxy:
    """The processes of one gateway."""

    slot: int
    """Slot of this process."""
    urls: list[str]
    """[num_processes], where the processes reach each other."""
    wait_seconds: float
    """Longest wait for a process that has ended; its parent restarts it."""
    disconnects: DisconnectWatcher = field(default_factory=DisconnectWatcher)
    """Watches the clients of forwarded requests."""

    @property
    def port(self) -> int:
        """Of this process alone."""
        return int(self.urls[self.slot].rpartition(":")[2])

    def new_rollout_id(self) -> str:
        """Mint an id of a rollout that belongs to this process."""
        while owner_slot(minted := new_id(), len(self.urls)) != self.slot:
            pass
        return minted

    @web.middleware
    async def forward(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer requests of own rollouts, and forward all others to their owner."""
        if _PASSED_ON in request.headers or not request.raw_path.startswith("/"):  # no path: it could name another host
            return await handler(request)
        if request.method == "POST" and request.path == RENEW_ROLLOUTS.path:
            renewal = _read(await read_text(request), RenewRequest)
            return await (self._renew(request, renewal) if renewal else handler(request))
        rollout_id = await _find_rollout(request)
        if rollout_id is None or (slot := owner_slot(rollout_id, len(self.urls))) == self.slot:
            return await handler(request)
        if hdrs.UPGRADE in request.headers:
            raise RefusedError(
                421,
                "other_process",
                f"{request.method} {request.path}: its rollout belongs to another process of this gateway, and no"
                " socket is passed on; open it at the base_url that POST /rollouts answered, or ask without a socket",
            )
        with self.disconnects.watch(HttpClient(request)):
            return await self._ask(request, slot)

    async def _ask(self, request: web.Request, slot: int) -> web.StreamResponse:
        async with (
            self._session() as session,
            await self._send(session, request, slot, await read_text(request)) as reply,
        ):
            headers = {name: value for name, value in reply.headers.items() if name.lower() not in _HOP}
            response = web.StreamResponse(status=reply.status, headers=headers)
            await response.prepare(request)
            with suppress(ConnectionError):  # the client left
                async for piece in reply.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
            return response

    async def _renew(self, request: web.Request, renewal: RenewRequest) -> web.StreamResponse:
        """Let each owner renew the keys of its own rollouts; those of a dead owner are unknown."""
        owned, renewed = defaultdict[int, list[str]](list), RenewedRollouts(unknown=[])
        for name in renewal.trajectory_ids:
            owned[owner_slot(_rollout_in(name), len(self.urls))].append(name)
        async with self._session() as session:
            for slot, names in owned.items():
                body = msgspec.json.encode(msgspec.structs.replace(renewal, trajectory_ids=names))
                try:
                    async with await self._send(session, request, slot, body) as reply:
                        answer = await reply.read()
                except (UnreachableError, ClientError):
                    renewed += RenewedRollouts(unknown=names)
                    continue
                if reply.status != 200:
                    return web.Response(status=reply.status, body=answer, content_type=reply.content_type)
                renewed += msgspec.json.decode(answer, type=RenewedRollouts)
        return as_json(renewed)

    def _session(self) -> ClientSession:
        return ClientSession(timeout=ClientTimeout(total=None, sock_connect=self.wait_seconds), auto_decompress=False)

    async def _send(self, session: ClientSession, request: web.Request, slot: int, body: bytes) -> ClientResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _READ}
        headers[_PASSED_ON] = str(self.slot)
        url, shown = f"{self.urls[slot]}{request.raw_path}", f"{self.urls[slot]}{request.path}"  # no key is shown
        deadline = asyncio.get_running_loop().time() + self.wait_seconds
        while True:
            try:
                # the port belongs to a process of our own: there is no certificate to be checked
                return await session.request(
                    request.method, url, data=body, headers=headers, ssl=False, allow_redirects=False
                )
            except ClientConnectorError as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise _unreachable(shown, error) from error
                await asyncio.sleep(_RETRY_SECONDS)
            except ClientError as error:
                raise _unreachable(shown, error) from error


async def _find_rollout(request: web.Request) -> str | None:
    """Name of the rollout that a request is about; None when it is about none, or about a new one."""
    if found := request.match_info.get("rollout_id"):
        return found
    if trajectory_id := request.match_info.get("trajectory_id") or request.headers.get(ROLLOUT_HEADER):
        return _rollout_in(trajectory_id)
    if request.method == "POST" and request.path == OPEN_ROLLOUT.path:
        opening = _read(await read_text(request), _Opening)
        return opening.rollout_id if opening else None
    return None


def _rollout_in(trajectory_id: str) -> str:
    return trajectory_id.rpartition("-")[0]


def _read(body: bytes, kind: type[B]) -> B | None:
    """Read a body; None: it is malformed, and the handler reports why."""
    try:
        return msgspec.json.decode(body, type=kind)
    except UNREADABLE:
        return None


def _unreachable(url: str, error: ClientError) -> UnreachableError:
    return UnreachableError(
        f"gateway process at {url}: expected an answer, found {error!r}; it restarts, and its attempts are lost:"
        " open others"
    )
