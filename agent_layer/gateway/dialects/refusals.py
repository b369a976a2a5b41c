"""Errors in the shape of each dialect, so that every SDK raises its own class with our sentence."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec
from aiohttp import web

from agent_layer.schema import UNREADABLE, JsonObject, as_json_object

_MAX_READ, _MAX_QUOTED = 2000, 200
"""Bytes of an answer, and characters of what it says."""
_FINAL = frozenset({"rollout_limit", "rollout_closed", "rollout_paused", "cost_limit"})
"""Codes of refusals that no retry can change."""


class RefusedError(Exception):
    """A request that is answered with an error, for a reason that only the gateway knows."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message)
        self.status, self.code, self.message = status, code, message


def refusal(path: str, status: int, code: str, message: str) -> web.Response:
    """Answer a request with an error. What will not change has a header, or a status, that keeps SDKs from retrying."""
    headers, shape = {"x-should-retry": "false"} if code in _FINAL else None, error_shape(path)
    if shape is google_error and code in _FINAL:
        status = _PRECONDITION  # its SDKs know no such header
    body = msgspec.json.encode(shape(status, code, _as_text(message)))
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def refuse_own_fault(path: str) -> web.Response:
    """Answer a request at which the gateway itself failed."""
    return refusal(path, 500, INTERNAL_ERROR, "gateway: it failed at this request; report what its log says")


def refuse_unread(status: int, code: str, message: str) -> web.Response:
    """Answer a request whose address is not known: the shapes of all dialects at once."""
    text = _as_text(message)
    fields = [shape(status, code, text) for shape in (google_error, openai_error, anthropic_error)]
    errors: JsonObject = {}
    for one in fields:
        errors |= as_json_object(one["error"])
    body = msgspec.json.encode({"type": "error", "error": errors})
    return web.Response(status=status, body=body, content_type="application/json")


def _as_text(message: str) -> str:
    return message.encode("utf-8", "replace").decode()  # errors quote requests, which may be no text


ErrorShape: TypeAlias = Callable[[int, str, str], JsonObject]
"""(status, code, sentence) → body."""

_ANTHROPIC_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
        504: "timeout_error",
        529: "overloaded_error",
    }
)


def openai_error(status: int, code: str, message: str) -> JsonObject:
    """Return the body that chat completions and responses use."""
    kinds = {429: "rate_limit_error"}
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "code": code, "param": None}}


def anthropic_error(status: int, code: str, message: str) -> JsonObject:
    """Return the body that the messages API uses; our code is in its details, where its SDKs look."""
    kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message, "code": code, "details": {"error_code": code}}}


_GOOGLE_STATUS: Final[Mapping[int, str]] = MappingProxyType(
    {
        401: "UNAUTHENTICATED",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
        409: "ABORTED",
        429: "RESOURCE_EXHAUSTED",
        502: "UNAVAILABLE",
        503: "UNAVAILABLE",
        504: "DEADLINE_EXCEEDED",
    }
)
_PRECONDITION: Final = 400


def google_error(status: int, code: str, message: str) -> JsonObject:
    """Return the body that Google's API uses; our code is the reason in its details."""
    name = _GOOGLE_STATUS.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
    if code in _FINAL:
        name = "FAILED_PRECONDITION"
    reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code, "domain": "agent-layer"}
    return {"error": {"code": status, "message": message, "status": name, "details": [reason]}}


_MESSAGES: Final = re.compile(r"/messages(?:/+(?:count_tokens|batches).*+)?/*$", re.DOTALL)
_GOOGLE: Final = re.compile(r"/v1(?:alpha|beta)[0-9]*/")
_MODELS: Final = "/models/"


def is_google(path: str) -> bool:
    """Whether an address is one of Google's API."""
    model, _, method = path.rpartition(":")
    is_method = method.isascii() and method.isalpha() and _MODELS in model[:-1]
    return is_method or _GOOGLE.search(path) is not None


def error_shape(path: str) -> ErrorShape:
    """The shape of errors at an address, in any spelling of it."""
    if is_google(path):
        return google_error
    return anthropic_error if _MESSAGES.search(path) else openai_error


def is_openai_error(body: bytes) -> bool:
    """Whether an engine's error is one that OpenAI's clients understand."""
    try:
        decoded = _ENGINE_ERROR.decode(body)
    except UNREADABLE:
        return False
    return isinstance(decoded.error, _Error) and decoded.error.message is not None


def read_engine_error(body: bytes) -> tuple[str, str]:
    """Code and sentence of an engine's error, whatever its shape."""
    try:
        decoded = _ENGINE_ERROR.decode(body)
    except UNREADABLE:
        return "engine_error", body.decode("utf-8", "replace")
    error = decoded.error if isinstance(decoded.error, _Error) else _Error(message=decoded.error or decoded.message)
    return error.type or "engine_error", error.message or body.decode("utf-8", "replace")


def describe_garbage(body: bytes) -> str:
    """Return what an answer that cannot be read begins with, or its error where it is one after status 200."""
    return repr(read_engine_error(body[:_MAX_READ])[1][:_MAX_QUOTED]) if body.strip() else "nothing"


BAD_REQUEST: Final = (400, 413, 422)
"""Statuses with which an engine refuses what was asked; all others are its own failures."""
CONTEXT_FULL: Final = "context_length_exceeded"
"""OpenAI's code of a request that does not fit into the model's context; clients know it."""
_CONTEXT_FULL: Final = re.compile(
    rb"context_length_exceeded|maximum context length|(?:longer|larger|greater) than the (?:maximum )?model(?:'s)?"
    rb" (?:context )?length|exceeds? the (?:available |model's )?(?:maximum )?context|prompt is too long"
    rb"|cannot be greater than max_model_len|max_completion_tokens is too large",
    re.IGNORECASE,
)
"""Sentences of OpenAI, vLLM, SGLang, llama.cpp and Anthropic about a full context."""


def is_context_full(status: int, body: bytes) -> bool:
    """Whether an engine refused a request because it does not fit into the model's context."""
    return status in BAD_REQUEST and _CONTEXT_FULL.search(body) is not None


_OPTIONS: Final[Mapping[str, re.Pattern[bytes]]] = MappingProxyType(
    {
        "reasoning_effort": re.compile(rb"reasoning[_ ]effort", re.IGNORECASE),
        "thinking_token_budget": re.compile(rb"thinking_token_budget|reasoning_config"),
    }
)
"""How much to think, and how engines name it that cannot be asked: vLLM without a reasoning parser has no budget, and
some templates know no effort, or not each."""


def find_refused_options(status: int, body: bytes) -> frozenset[str]:
    """Return the fields without which an engine may answer what it refused."""
    if status not in BAD_REQUEST:
        return frozenset()
    return frozenset(name for name, pattern in _OPTIONS.items() if pattern.search(body))


INTERNAL_ERROR: Final = "internal_error"
"""Code of a fault of the gateway itself."""
NOT_SERVED: Final = "not_served"
"""Code of what clients ask that is served nowhere here."""
NO_TOOL_PARSER: Final = "tool_parser_missing"
"""Code of a request with tools that an engine refused because it parses no tool calls."""
_NO_TOOL_PARSER: Final = re.compile(rb"tool.choice[^{}]{0,80} requires --(?:enable-auto-tool-choice|tool-call-parser)")
"""vLLM's sentence about a missing tool parser."""


def lacks_tool_parser(status: int, body: bytes) -> bool:
    """Whether an engine refused a request because it was started without a parser of tool calls."""
    return status in BAD_REQUEST and _NO_TOOL_PARSER.search(body) is not None


class _Error(msgspec.Struct):
    message: str | None = None
    type: str | None = None


class _EngineError(msgspec.Struct):
    error: _Error | str | None = None
    message: str | None = None


_ENGINE_ERROR: Final = msgspec.json.Decoder(_EngineError)
