"""Key of a server: without it, every route is refused. Nothing here needs vLLM.

Each server's process makes its own when it starts. The key stays in memory: Ray carries it to the trainer, which tells
the registry, from which gateways read it. It is in no argument, variable or log.
"""

import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Final, TypeAlias, cast

import msgspec

Message: TypeAlias = MutableMapping[str, object]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

_KEY: Final = secrets.token_urlsafe(32)
_POLICY_VIOLATION = 1008
"""Code of a refused WebSocket (RFC 6455, 7.4.1)."""
_REFUSAL: Final = {
    "message": "expected this server's key as 'Authorization: Bearer KEY'; agents call the gateway instead",
    "type": "invalid_request_error",
    "code": "invalid_api_key",
}


def access_key() -> str:
    """Return the key of the server in this process."""
    return _KEY


class RequireKey:
    """ASGI middleware that refuses each request without the key of this process, whatever its route and method.

    vLLM's own ``--api-key`` leaves routes such as ``/pause`` and ``/collective_rpc`` open, and is visible as argument.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Let the application answer, or refuse."""
        kind = scope["type"]
        if kind == "lifespan" or _has_key(cast("Iterable[tuple[bytes, bytes]]", scope.get("headers", ()))):
            await self._app(scope, receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        else:
            await send_error(send, 401, _REFUSAL, [(b"www-authenticate", b"Bearer")])


async def send_error(
    send: Send, status: int, error: Mapping[str, str], headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Answer a request with an error, in the form of vLLM's own."""
    body = msgspec.json.encode({"error": error})
    length = (b"content-length", str(len(body)).encode())
    headers = [(b"content-type", b"application/json"), length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _has_key(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    found = [value for name, value in headers if name.lower() == b"authorization"]
    scheme, _, key = found[0].partition(b" ") if len(found) == 1 else (b"", b"", b"")
    return scheme.lower() == b"bearer" and hmac.compare_digest(key, _KEY.encode())
