"""Addresses of model calls: one for each dialect, below a rollout's address or plain."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from aiohttp import web

from agent_layer.gateway.calls.pipeline import Calls
from agent_layer.gateway.calls.requests import body_size, in_background, read_text
from agent_layer.gateway.dialects.base import Dialect
from agent_layer.gateway.dialects.completions import Completions
from agent_layer.gateway.dialects.messages import Messages
from agent_layer.gateway.dialects.responses import Responses
from agent_layer.gateway.http.auth import Access
from agent_layer.gateway.http.errors import as_json

_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _dialects() -> dict[str, Dialect]:
    return {"/v1/chat/completions": Completions(), "/v1/messages": Messages(), "/v1/responses": Responses()}


@dataclass(kw_only=True)
class ModelRoutes:
    """Receives calls in every dialect."""

    access: Access
    calls: Calls
    dialects: dict[str, Dialect] = field(default_factory=_dialects)
    """Dialects by address."""

    def routes(self) -> list[web.RouteDef]:
        """Addresses, the most used first: they are tried in order."""
        handlers = [(path, self._make_handler(dialect)) for path, dialect in self.dialects.items()]
        handlers.append(("/v1/messages/count_tokens", self._count_tokens))
        return [
            *(web.post(f"/r/{{trajectory_id}}{path}", handler) for path, handler in handlers),
            *(web.post(path, handler) for path, handler in handlers),
        ]

    def _make_handler(self, dialect: Dialect) -> _Handler:
        async def ask(request: web.Request) -> web.StreamResponse:
            return await self.calls.answer(self.access.enter(request), request, dialect)

        return ask

    async def _count_tokens(self, request: web.Request) -> web.Response:
        rollout = self.access.enter(request)
        dialect = self.dialects["/v1/messages"]
        async with self.calls.hold_body(rollout, body_size(request)) as held:
            body = await read_text(request)
            held.shrink(len(body))
            parsed = await in_background(len(body), lambda: dialect.read(body, rollout.trajectory_id))
            return as_json({"input_tokens": await self.calls.count_tokens(rollout, parsed, request.headers)})
