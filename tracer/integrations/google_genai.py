"""Tracing of google-genai: ``generate_content`` and its streams, sync and async. Importing this module installs it.

Chats and automatic function calls make such calls, too, each a step. A routed call goes to its gateway as one of
Google's Gemini API, whatever platform the client was made for.
"""

import re
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple, Protocol, cast
from weakref import WeakKeyDictionary

from google.genai._api_client import BaseApiClient  # pyright: ignore[reportPrivateUsage]  # one seam for all calls
from google.genai.types import HttpOptions

from tracer.core import Call, adopt_call, current_scope
from tracer.integrations.client import Dialect, SentCall, StreamRecorder, call_headers, trace_calls
from tracer.integrations.translated import google_dialect

__all__: list[str] = []

_ADDRESS: Final = re.compile(r"(?:^|/)models/(?P<model>[^:?]+):(?P<is_streamed>streamG|g)enerateContent")


class _Response(Protocol):
    body: str | None


class _SentRequest(NamedTuple):
    """A call as it is sent."""

    call: Call
    dialect: Dialect
    sender: BaseApiClient
    path: str
    body: dict[str, object]
    options: object

    def arguments(self, http_method: str) -> tuple[BaseApiClient, str, str, dict[str, object], object]:
        return self.sender, http_method, self.path, self.body, self.options


def _begin(client: BaseApiClient, path: str, body: dict[str, object], options: object) -> _SentRequest | None:
    """Return the call of this request; None for requests that are no model call, and outside rollouts."""
    scope, address = current_scope(), _ADDRESS.search(path)
    if scope is None or address is None:
        return None
    model, is_streamed = address["model"], address["is_streamed"] == "streamG"
    dialect = google_dialect(model, is_streamed=is_streamed)
    call = adopt_call(scope, "hook")
    if not call.is_routed:
        read = {name: value for name, value in body.items() if not name.startswith("_")} | {"model": model}
        call.record_start(dialect.read_request(read))
        return _SentRequest(call, dialect, client, path, body, options)
    path = path[path.index("models/", address.start()) :]
    return _SentRequest(call, dialect, _find_sender(client), path, body, _address(call, options))


_SENDERS: WeakKeyDictionary[BaseApiClient, BaseApiClient] = WeakKeyDictionary()


def _find_sender(client: BaseApiClient) -> BaseApiClient:
    """Return the client that sends to a gateway: with the connections of the caller's, and no key of another party."""
    if (sender := _SENDERS.get(client)) is None:
        theirs = client._http_options  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        pools = {
            "httpx_client": client._httpx_client,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
            "httpx_async_client": client._async_httpx_client,  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
            "headers": None,
            "api_version": "v1beta",
            "base_url_resource_scope": None,
        }
        options = theirs.model_copy(update=pools)
        sender = _SENDERS[client] = BaseApiClient(
            vertexai=False, api_key="the key of the rollout", http_options=options
        )
    return sender


def _address(call: Call, options: object) -> HttpOptions:
    """Return the options of a request with address, key and ids of the call's rollout."""
    rollout = call.scope.rollout
    theirs = options if isinstance(options, HttpOptions) else HttpOptions.model_validate(options or {})
    headers = {**(theirs.headers or {}), **call_headers(call), "x-goog-api-key": rollout.api_key or ""}
    root = (rollout.base_url or "").removesuffix("/v1")
    return theirs.model_copy(update={"base_url": root, "headers": headers})


def _end(request: _SentRequest, result: object) -> object:
    """Record a whole answer, or the pieces of one, before the caller gets it."""
    if hasattr(result, "__aiter__"):
        return _watch_async(request, cast("AsyncIterator[_Response]", result))
    if hasattr(result, "__next__"):
        return _watch(request, cast("Iterator[_Response]", result))
    if request.call.is_routed:  # the gateway records the answer
        request.call.record_start(capture_level=None)
        request.call.leave()
    else:
        request.call.finish("hook", request.dialect.read_answer((cast("_Response", result).body or "").encode()))
    return result


def _send(
    function: Callable[..., object],
    client: BaseApiClient,
    http_method: str,
    path: str,
    request_dict: dict[str, object],
    http_options: object = None,
) -> SentCall | None:
    request = _begin(client, path, request_dict, http_options)
    return request and SentCall(request.call, lambda: function(*request.arguments(http_method)), partial(_end, request))


@contextmanager
def _recorded(request: _SentRequest) -> Generator[Callable[[_Response], None]]:
    """Record a streamed call; what is yielded takes its pieces, each before the caller gets it."""
    call = request.call
    record = None if call.is_routed else StreamRecorder(call, request.dialect)

    def add(piece: _Response) -> None:
        if record is not None:
            record.add_event(piece.body or "")
        elif call.is_open:
            _end(request, piece)

    try:
        yield add
    except Exception as error:
        if record is None:
            call.fail("hook", error)
        else:
            record.end(error=error)
        raise
    finally:
        if record is not None:
            record.end()


def _watch(request: _SentRequest, stream: Iterator[_Response]) -> Iterator[_Response]:
    with _recorded(request) as add:
        for piece in stream:
            add(piece)
            yield piece


async def _watch_async(request: _SentRequest, stream: AsyncIterator[_Response]) -> AsyncIterator[_Response]:
    with _recorded(request) as add:
        async for piece in stream:
            add(piece)
            yield piece


for _name in ("request", "request_streamed", "async_request", "async_request_streamed"):
    setattr(BaseApiClient, _name, trace_calls(getattr(BaseApiClient, _name), "hook", _send))
