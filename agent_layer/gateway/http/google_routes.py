"""Addresses of Google's Gemini API, below a rollout's address, with its ``/v1`` or without, or plain.

The model and what is asked of it are in the path: ``/v1beta/models/{model}:generateContent``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from aiohttp import web

from agent_layer.gateway.calls.pipeline import Calls
from agent_layer.gateway.calls.requests import body_size, in_background, read_text
from agent_layer.gateway.dialects.google.request import EVENT_STREAM, JSON_ARRAY, Google, read_counted
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.gateway.http.auth import Access
from agent_layer.gateway.http.errors import as_json
from agent_layer.schema import mend_surrogates

_BASE: Final = "/{version:/*(?:v1/+)?v1(?:(?:alpha|beta)[0-9]*)?}"
_MODELS: Final = "/{parent:(?:[^:]+/)?}models"
"""Vertex puts project, place and publisher before it."""
_METHODS: Final = ("generateContent", "streamGenerateContent", "countTokens")


class ShownModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as Google's clients read it, and OpenAI's: both list models below ``/v1``."""

    name: str
    display_name: str = msgspec.field(name="displayName")
    version: str = "1"
    methods: tuple[str, ...] = msgspec.field(name="supportedGenerationMethods", default=_METHODS)
    id: str
    object: str = "model"
    owned_by: str = "policy"


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """A whole list of models, for both."""

    models: list[ShownModel]
    data: list[ShownModel]
    object: str = "list"


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
                web.get(f"{below}{_BASE}/models", self._list_models),
                web.get(f"{below}{_BASE}/models/{{model:.+}}", self._show_model),
            )
        ]

    async def _ask(self, request: web.Request) -> web.StreamResponse:
        rollout, model = self.access.enter(request), request.match_info["model"]
        match request.match_info["method"]:
            case "generateContent":
                return await self.calls.answer(rollout, request, Google(model=model))
            case "streamGenerateContent":
                form = EVENT_STREAM if request.query.get("alt") == "sse" else JSON_ARRAY
                return await self.calls.answer(rollout, request, Google(model=model, stream_type=form))
            case "countTokens":
                async with self.calls.hold_body(rollout, body_size(request)) as held:
                    body = await read_text(request)
                    held.shrink(len(body))
                    parsed = await in_background(len(body), lambda: read_counted(mend_surrogates(body), model))
                    return as_json({"totalTokens": await self.calls.count_tokens(rollout, parsed, request.headers)})
            case other:
                raise RefusedError(
                    404,
                    "not_found",
                    f"model {model}: expected {', '.join(_METHODS)}, found {other}, which a policy cannot do; ask"
                    " another model",
                )

    async def _list_models(self, request: web.Request) -> web.Response:
        self._check_key(request)
        shown = [self._show(self.model_name())]
        return as_json(ModelList(models=shown, data=shown))

    async def _show_model(self, request: web.Request) -> web.Response:
        """Show a model by any name: the policy answers to all of them."""
        self._check_key(request)
        return as_json(self._show(request.match_info["model"]))

    def _show(self, name: str) -> ShownModel:
        return ShownModel(name=f"models/{name}", display_name=self.model_name(), id=name)

    def _check_key(self, request: web.Request) -> None:
        if "trajectory_id" in request.match_info:
            self.access.enter(request)
        else:
            self.access.check_operator(request)
