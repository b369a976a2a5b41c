"""Addresses of Google's Gemini API, below a rollout's address, with its ``/v1`` or without, or plain.

The model and what is asked of it are in the path: ``/v1beta/models/{model}:generateContent``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from agent_layer.gateway.calls.pipeline import Calls
from agent_layer.gateway.calls.requests import body_size, in_background, read_text
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.google import EVENT_STREAM, JSON_ARRAY, Google
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.gateway.http.auth import Access
from agent_layer.gateway.http.errors import as_json
from agent_layer.gateway.http.model_routes import GOOGLE_METHODS, answer_request, list_models, show_model

_BASE: Final = "/{version:/*(?:v1/+)?v1(?:(?:alpha|beta)[0-9]*)?}"
_MODELS: Final = "/{parent:(?:(?!models/)[^/:]*+/)*+}models"
"""Vertex puts project, place and publisher before it."""
_PREVIEWS: Final = "/{version:/*(?:v1/+)?v1(?:alpha|beta)[0-9]*}"
"""Below ``/v1`` the other dialects' door shows models, to Google's clients, too."""


@dataclass(kw_only=True)
class GoogleRoutes:
    """Receives what Google's clients ask."""

    access: Access
    calls: Calls
    model_name: Callable[[], str]
    """Returns the name of the policy's model."""

    def routes(self) -> list[web.RouteDef]:
        """Addresses."""
        return [
            route
            for below in ("/r/{trajectory_id}", "")
            for route in (
                web.post(f"{below}{_BASE}{_MODELS}/{{model:.+}}:{{method:[A-Za-z]+}}", self._ask),
                web.get(f"{below}{_PREVIEWS}/models", self._list_models),
                web.get(f"{below}{_PREVIEWS}/models/{{model:.+}}", self._show_model),
            )
        ]

    async def _ask(self, request: web.Request) -> web.StreamResponse:
        (rollout, is_operator), model = self.access.enter_as(request), request.match_info["model"]
        match request.match_info["method"]:
            case "generateContent":
                dialect = Google(model=model)
            case "streamGenerateContent":
                dialect = Google(
                    model=model, stream_type=EVENT_STREAM if request.query.get("alt") == "sse" else JSON_ARRAY
                )
            case "countTokens":
                counted = Google(model=model, is_counted=True)

                def read() -> ChatRequest:
                    return self.calls.read_question(rollout, counted, body, is_operator=is_operator)

                rollout.check_is_open()
                async with self.calls.hold_body(rollout, body_size(request)) as held:
                    body = await read_text(request)
                    held.shrink(len(body))
                    parsed = await in_background(len(body), read)
                    return as_json({"totalTokens": await self.calls.count_tokens(rollout, parsed, request.headers)})
            case other:
                raise RefusedError(
                    404,
                    "not_found",
                    f"model {model}: expected {', '.join(GOOGLE_METHODS)}, found {other}, which a policy cannot do; ask"
                    " another model",
                )
        return await answer_request(self.calls, rollout, request, dialect, is_operator=is_operator)

    async def _list_models(self, request: web.Request) -> web.Response:
        self._check_key(request)
        return as_json(list_models(self.model_name()))

    async def _show_model(self, request: web.Request) -> web.Response:
        """Show a model by any name: the policy answers to all of them."""
        self._check_key(request)
        return as_json(show_model(request.match_info["model"], self.model_name()))

    def _check_key(self, request: web.Request) -> None:
        if "trajectory_id" in request.match_info:
            self.access.enter(request)
        else:
            self.access.check_operator(request)
