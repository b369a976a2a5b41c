"""Doors of the model: one for each dialect, below a rollout's address or plain, however a client spells the way there.

SDKs and agents put their paths behind a base address with or without ``/v1``, with one slash or two, and Azure's behind
``/openai`` and ``/deployments/NAME``. ``make_door`` is the one place that knows these spellings. It skips only fixed
words, so no spelling leads to another handler than the plain one, and each handler asks for the same key.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
from aiohttp import web

from agent_layer.gateway.calls.client import HttpClient
from agent_layer.gateway.calls.pipeline import Calls
from agent_layer.gateway.calls.requests import body_size, in_background, read_text
from agent_layer.gateway.dialects.base import Dialect
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.completions import Completions, SideEndpoint
from agent_layer.gateway.dialects.messages import Messages
from agent_layer.gateway.dialects.refusals import NOT_SERVED, RefusedError
from agent_layer.gateway.dialects.responses import Responses
from agent_layer.gateway.http.auth import Access
from agent_layer.gateway.http.errors import as_json
from agent_layer.gateway.rollouts.rollout import LiveRollout
from agent_layer.schema import JsonObject

_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_BASE: Final = "/*+(?:(?:v1|openai)(?:/++|$))*+"
_DEPLOYMENT: Final = "(?:deployments/++[^/]++/++)?+"
"""Azure's name of a model, in the path; the body names it, too, and any name is accepted."""
_MODELS, _MODEL = "models", "(?P<model>.+?)"
_ANY: Final = "[^/]++(?:/++[^/]++)*+"
_UNSERVED: Final = {
    ("responses", _ANY): "keep what POST /v1/responses answers, or continue it with previous_response_id",
    ("conversations(?:/.*+)?",): "send the whole input, or continue an answer with previous_response_id",
    ("messages", "batches(?:/.*+)?"): "send the questions one by one: each is answered at once",
    ("batches(?:/.*+)?",): "send the questions one by one: each is answered at once",
    ("files(?:/.*+)?",): "put files into the messages, as data URIs",
    (
        (
            "(?:audio|images|moderations|realtime|vector_stores|fine_tuning|assistants|threads|uploads|containers|evals"
            "|rerank|score|classify|pooling|videos)(?:/.*+)?"
        ),
    ): "give the agent a client of its own for that, with the address of a server that does it",
}
"""Paths of both APIs that the gateway does not serve, and what to do instead."""


_COUNTED: Final[Mapping[str, tuple[str, JsonObject]]] = {
    "messages/count_tokens": ("messages", {}),
    "responses/input_tokens": ("responses", {"object": "response.input_tokens"}),
}
"""Paths that count the tokens of a prompt: (dialect, members of the answer beside the count)."""


def make_door(*words: str) -> str:
    """Return a pattern of all ways in which clients spell a path of the model's API.

    Args:
        words: patterns of its segments, without ``v1``; none: the address itself.
    """
    deployment = _DEPLOYMENT if words else ""
    return "".join(["/{door:", _BASE, deployment, "/++".join(words), "/*}"])


GOOGLE_METHODS: Final = ("generateContent", "streamGenerateContent", "countTokens")
"""What Google's clients may ask of a model."""


class ShownModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as the clients of OpenAI, Anthropic and Google read it."""

    id: str
    object: str = "model"
    type: str = "model"
    owned_by: str = "policy"
    display_name: str
    created: int = 0
    created_at: str = "1970-01-01T00:00:00Z"
    name: str
    google_display_name: str = msgspec.field(name="displayName")
    version: str = "1"
    methods: tuple[str, ...] = msgspec.field(name="supportedGenerationMethods", default=GOOGLE_METHODS)


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """A whole list of models, for all of them."""

    data: list[ShownModel]
    models: list[ShownModel]
    object: str = "list"
    has_more: bool = False
    first_id: str
    last_id: str


def show_model(name: str, policy: str) -> ShownModel:
    """Return a model under the name that a client gives it, with that of the policy's."""
    return ShownModel(id=name, display_name=policy, name=f"models/{name}", google_display_name=policy)


def list_models(policy: str) -> ModelList:
    """Return the list of the one model that there is."""
    shown = [show_model(policy, policy)]
    return ModelList(data=shown, models=shown, first_id=policy, last_id=policy)


def _dialects() -> dict[str, Dialect]:
    return {
        "chat/completions": Completions(),
        "messages": Messages(),
        "responses": Responses(),
        "completions": SideEndpoint("completions", "prompt"),
        "embeddings": SideEndpoint("embeddings", "input"),
    }


@dataclass(kw_only=True)
class ModelRoutes:
    """Receives calls in every dialect."""

    access: Access
    calls: Calls
    model_name: Callable[[], str]
    """Returns the name of the policy's model."""
    dialects: dict[str, Dialect] = field(default_factory=_dialects)
    """Dialects by path."""

    def routes(self) -> list[web.RouteDef]:
        """Doors, the most used first: they are tried in order."""
        posted = [(path.split("/"), self._make_handler(dialect)) for path, dialect in self.dialects.items()]
        posted += [(path.split("/"), self._make_counter(*counted)) for path, counted in _COUNTED.items()]
        read = [([_MODELS], self._list_models), ([_MODELS, _MODEL], self._show_model), (list[str](), _answer_probe)]
        return [
            *(
                route
                for below in ("/r/{trajectory_id}", "")
                for route in (
                    *(web.post(below + make_door(*map(re.escape, words)), handler) for words, handler in posted),
                    *(web.get(below + make_door(*words), handler) for words, handler in read),
                )
            ),
            web.get("/r/{trajectory_id}", _answer_probe),
        ]

    def refusals(self) -> list[web.RouteDef]:
        """Doors of what is not served; behind all others, which their patterns may fit, too."""
        return [
            web.route("*", below + make_door(*words), self._refuse_by(advice))
            for below in ("/r/{trajectory_id}", "")
            for words, advice in _UNSERVED.items()
        ]

    def _make_handler(self, dialect: Dialect) -> _Handler:
        async def ask(request: web.Request) -> web.StreamResponse:
            rollout, is_operator = self.access.enter_as(request)
            return await answer_request(self.calls, rollout, request, dialect, is_operator=is_operator)

        return ask

    def _refuse_by(self, advice: str) -> _Handler:
        async def refuse(request: web.Request) -> web.StreamResponse:
            self._check_key(request)
            raise RefusedError(
                404, NOT_SERVED, f"{request.method} {request.path}: the gateway does not serve this; {advice}"
            )

        return refuse

    def _make_counter(self, dialect: str, shown: JsonObject) -> _Handler:
        async def count(request: web.Request) -> web.Response:
            rollout, is_operator = self.access.enter_as(request)
            rollout.check_is_open()

            def read() -> ChatRequest:
                return self.calls.read_question(rollout, self.dialects[dialect], body, is_operator=is_operator)

            async with self.calls.hold_body(rollout, body_size(request)) as held:
                body = await read_text(request)
                held.shrink(len(body))
                parsed = await in_background(len(body), read)
                num_tokens = await self.calls.count_tokens(rollout, parsed, request.headers)
                return as_json({**shown, "input_tokens": num_tokens})

        return count

    async def _list_models(self, request: web.Request) -> web.Response:
        self._check_key(request)
        return as_json(list_models(self.model_name()))

    async def _show_model(self, request: web.Request) -> web.Response:
        """Show a model by any name: the policy answers to all of them."""
        self._check_key(request)
        name = request.match_info["model"]
        return as_json(show_model(name, self.model_name()))

    def _check_key(self, request: web.Request) -> None:
        if "trajectory_id" in request.match_info:
            self.access.enter(request)
        else:
            self.access.check_operator(request)


async def answer_request(
    calls: Calls, rollout: LiveRollout, request: web.Request, dialect: Dialect, *, is_operator: bool
) -> web.StreamResponse:
    """Answer a question that came as an HTTP request; see ``Calls.answer``."""
    client = HttpClient(request)
    whole = await calls.answer(rollout, client, dialect, is_operator=is_operator)
    answered = client.stream if whole is None else whole
    return web.Response() if answered is None else answered


async def _answer_probe(_: web.Request) -> web.Response:
    """Answer agents that ask whether anything is at their address; without a key, so it reveals no rollout."""
    return as_json({"status": "ok"})
