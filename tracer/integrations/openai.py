"""This file holds the openai client's tracing: each chat call goes to the rollout of the code that makes it.

It acts on the request, not on the client, so that a client built once at import serves many rollouts at a time. A
request and the client's own retries of it are one call, with one call id.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Protocol, Self, cast

from openai import AsyncOpenAI, OpenAI

from tracer.calls import Call, failed_answer, take_over
from tracer.context import current_scope
from tracer.integrations.chat import read_request
from tracer.integrations.openai_answers import record_answer
from tracer.traceparent import format_traceparent

__all__: list[str] = []

_CALL_HEADER = "x-agent-layer-call"
_CHAT_PATH = "/chat/completions"


class _Options(Protocol):
    """What we use of the client's own description of a request."""

    url: str
    headers: object
    json_data: object
    extra_json: Mapping[str, object] | None

    def model_copy(self, *, update: Mapping[str, object]) -> Self: ...


def _trace(request: Callable[..., object]) -> Callable[..., object]:
    @wraps(request)
    def traced(client: object, cast_to: object, options: _Options, **kwargs: object) -> object:
        call = _begin(options)
        if call is None:
            return request(client, cast_to, options, **kwargs)
        try:
            result = request(client, cast_to, _address(options, call), **kwargs)
        except BaseException as error:
            _fail(call, error)
            raise
        _answer(call, result)
        return result

    return traced


def _trace_async(request: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    @wraps(request)
    async def traced(client: object, cast_to: object, options: _Options, **kwargs: object) -> object:
        call = _begin(options)
        if call is None:
            return await request(client, cast_to, options, **kwargs)
        try:
            result = await request(client, cast_to, _address(options, call), **kwargs)
        except BaseException as error:
            _fail(call, error)
            raise
        _answer(call, result)
        return result

    return traced


def _begin(options: _Options) -> Call | None:
    """Give the call that this request is; None for what is no chat call, or outside any rollout."""
    scope = current_scope()
    if scope is None or options.url != _CHAT_PATH:
        return None
    call = take_over(scope, "hook")
    call.call_id = _headers_of(options).get(_CALL_HEADER, call.call_id)
    if not call.is_routed:
        body = {**cast("Mapping[str, object]", options.json_data or {}), **(options.extra_json or {})}
        call.record_start(read_request(body))
    return call


def _address(options: _Options, call: Call) -> _Options:
    """Give the request with the address, key and ids of the call's rollout."""
    if not call.is_routed:
        return options
    rollout = call.scope.rollout
    headers = {name: value for name, value in _headers_of(options).items() if name.lower() != "authorization"}
    headers |= {
        "Authorization": f"Bearer {rollout.api_key}",
        _CALL_HEADER: call.call_id,
        "x-agent-layer-rollout": rollout.trajectory_id,
        "traceparent": format_traceparent(rollout.trace_id, call.span_id),
    }
    return options.model_copy(update={"url": f"{rollout.base_url}{_CHAT_PATH}", "headers": headers})


def _headers_of(options: _Options) -> dict[str, str]:
    headers = options.headers
    return dict(cast("Mapping[str, str]", headers)) if isinstance(headers, Mapping) else {}


def _fail(call: Call, error: BaseException) -> None:
    if call.is_routed:
        call.is_open = False
    else:
        call.finish("hook", failed_answer(error))


def _answer(call: Call, result: object) -> None:
    """Record the call before its answer is handed on."""
    if call.is_routed:
        call.record_start(capture_level=None)
        call.leave()
    else:
        record_answer(call, result)


setattr(OpenAI, "request", _trace(OpenAI.request))  # noqa: B010 - to type checkers, a method is not for assigning
setattr(AsyncOpenAI, "request", _trace_async(AsyncOpenAI.request))  # noqa: B010 - the same
