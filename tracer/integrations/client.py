"""This file holds the tracing of clients that are made like openai's: each call goes to the rollout of its code.

It acts on the request, not on the client, so that a client built once at import serves many rollouts at a time. A
request and the client's own retries of it are one call, with one call id.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import NamedTuple, Protocol, Self, cast

from agent_layer.schema.headers import CALL_HEADER
from tracer.calls import Call, take_over
from tracer.context import current_scope
from tracer.integrations.client_answers import record_answer
from tracer.integrations.dialects import Dialect
from tracer.integrations.headers import call_headers

__all__ = ["Api", "trace_client"]


class Api(NamedTuple):
    """What one client library calls, and how it says its key."""

    dialects: Mapping[str, Dialect]
    """By the path below the client's address."""
    root: str
    """Path of the client's address below a gateway's address for one rollout, which ends in /v1: '' or '..'."""
    key_headers: Callable[[str], Mapping[str, str]]
    """Gives the headers that say a key, spelled as the client spells them: others would be sent beside its own."""


class _Options(Protocol):
    """What we use of a client's own description of a request."""

    url: str
    headers: object
    json_data: object
    extra_json: Mapping[str, object] | None

    def model_copy(self, *, update: Mapping[str, object]) -> Self: ...


def trace_client(client: type, async_client: type, api: Api) -> None:
    """Trace every request of these classes of clients."""
    setattr(client, "request", _trace(api, getattr(client, "request")))  # noqa: B009, B010 - a method of a foreign class
    setattr(async_client, "request", _trace_async(api, getattr(async_client, "request")))  # noqa: B009, B010 - the same


def _trace(api: Api, request: Callable[..., object]) -> Callable[..., object]:
    @wraps(request)
    def traced(client: object, cast_to: object, options: _Options, **kwargs: object) -> object:
        call = _begin(api, options)
        if call is None:
            return request(client, cast_to, options, **kwargs)
        try:
            result = request(client, cast_to, _address(api, options, call), **kwargs)
        except BaseException as error:
            call.fail("hook", error)
            raise
        _answer(call, result, _dialect_of(api, options))
        return result

    return traced


def _trace_async(api: Api, request: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    @wraps(request)
    async def traced(client: object, cast_to: object, options: _Options, **kwargs: object) -> object:
        call = _begin(api, options)
        if call is None:
            return await request(client, cast_to, options, **kwargs)
        try:
            result = await request(client, cast_to, _address(api, options, call), **kwargs)
        except BaseException as error:
            call.fail("hook", error)
            raise
        _answer(call, result, _dialect_of(api, options))
        return result

    return traced


def _begin(api: Api, options: _Options) -> Call | None:
    """Give the call that this request is; None for what is no model call, or outside any rollout."""
    scope, dialect = current_scope(), _dialect_of(api, options)
    if scope is None or dialect is None:
        return None
    call = take_over(scope, "hook")
    call.call_id = _headers_of(options).get(CALL_HEADER, call.call_id)
    if not call.is_routed:
        body = {**cast("Mapping[str, object]", options.json_data or {}), **(options.extra_json or {})}
        call.record_start(dialect.read_request(body))
    return call


def _dialect_of(api: Api, options: _Options) -> Dialect | None:
    return api.dialects.get(options.url) or api.dialects.get(options.url.partition("?")[0])


def _address(api: Api, options: _Options, call: Call) -> _Options:
    """Give the request with the address, key and ids of the call's rollout."""
    rollout = call.scope.rollout
    if not call.is_routed or rollout.base_url is None:
        return options
    ours = {**api.key_headers(rollout.api_key or ""), **call_headers(call)}
    names = {name.lower() for name in ours}
    theirs = {name: value for name, value in _headers_of(options).items() if name.lower() not in names}
    root = rollout.base_url if api.root != ".." else rollout.base_url.rpartition("/")[0]
    return options.model_copy(update={"url": root + options.url, "headers": theirs | ours})


def _headers_of(options: _Options) -> dict[str, str]:
    headers = options.headers
    return dict(cast("Mapping[str, str]", headers)) if isinstance(headers, Mapping) else {}


def _answer(call: Call, result: object, dialect: Dialect | None) -> None:
    """Record the call before its answer is handed on."""
    if call.is_routed or dialect is None:
        call.record_start(capture_level=None)
        call.leave()
    else:
        record_answer(call, result, dialect)
