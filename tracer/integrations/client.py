"""Tracing of clients with the design of openai's: each call is attributed to the rollout of the code that makes it.

The hook acts on the request, not on the client, so that a client built once at import serves many rollouts at a time. A
request and the client's retries of it are one call with one id. From top to bottom: reading requests and answers of one
``Dialect``; recording answers, streams included; the hook that routes a request.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from inspect import iscoroutine, iscoroutinefunction
from typing import NamedTuple, Protocol, Self, cast
from weakref import WeakKeyDictionary

import msgspec

from agent_layer.schema import AGENT_HEADER, CALL_HEADER, ROLLOUT_HEADER, JsonObject, json_text, json_value, safe_repr
from agent_layer.translation import is_harmless
from tracer.core import Call, CallAnswer, CallRequest, Layer, adopt_call, current_scope, failed_answer, write_trace

_DECODER = "_decoder"
"""Attribute of a stream: decoder from bytes to events. Not public, but in every version of both clients."""
_RAW_HEADER = "x-stainless-raw-response"
NOT_PARSED = "answer_not_parsed"
"""Finding of a call whose answer is known, but is not what its caller can parse."""
NOT_UNDERSTOOD = "answer_not_understood"
"""Finding of a call whose answer, or a part of it, is not what its server should send."""


class _ReadStream(Protocol):
    def __call__(self, chunks: Iterable[str], *, is_whole: bool) -> CallAnswer: ...


class Dialect(NamedTuple):
    """How requests and answers of one API are read, into the form of chat completions. Pure functions."""

    read_request: Callable[[Mapping[str, object]], CallRequest]
    read_answer: Callable[[bytes], CallAnswer]
    """Reads an answer that was not streamed."""
    read_stream: _ReadStream
    """Assembles an answer from the data of its events; an incomplete one counts as aborted."""
    is_last: Callable[[str], bool]
    """Whether the event with this data completes the answer."""


def read_sampling(body: Mapping[str, object], others: frozenset[str]) -> JsonObject:
    """Return the members of a request that shape the answer: all but ``others``, and those that shape none."""
    found = {name: body[name] for name in body.keys() - others}
    return {name: json_value(value) for name, value in found.items() if not is_harmless(name, json_text(value))}


class StreamRecorder:
    """Records a stream while it is read. A stream that is unfinished when its rollout ends was abandoned."""

    def __init__(self, call: Call, dialect: Dialect, request: CallRequest | None = None) -> None:
        self._call, self._dialect, self._request = call, dialect, request
        self._events: list[str] = []
        call.scope.rollout.unfinished[call.call_id] = self.end

    def add_event(self, event: str) -> None:
        """Add the data of one event; the last event ends the stream."""
        if not event:
            return
        self._events.append(event)
        if self._dialect.is_last(event):
            self.end(is_whole=True)

    def end(self, *, is_whole: bool = False, error: Exception | None = None) -> None:
        """Record the answer; once only. With the error that broke it off, if one did."""
        if self._call.scope.rollout.unfinished.pop(self._call.call_id, None) is None:
            return
        answer = self._dialect.read_stream(self._events, is_whole=is_whole)
        if error is not None:
            failed = failed_answer(error)
            answer = msgspec.structs.replace(answer, status=failed.status, error=failed.error)
        self._call.finish("hook", answer, self._request)


class _Event(Protocol):
    """One server-sent event."""

    @property
    def data(self) -> str: ...


class _Decoder(Protocol):
    def iter_bytes(self, iterator: Iterator[bytes]) -> Iterator[_Event]: ...
    def aiter_bytes(self, iterator: AsyncIterator[bytes]) -> AsyncIterator[_Event]: ...


class _Request(Protocol):
    headers: Mapping[str, str]


class _Http(Protocol):
    is_stream_consumed: bool
    request: _Request

    @property
    def content(self) -> bytes: ...


class _RawResponse(Protocol):
    """Result of ``with_raw_response`` and ``with_streaming_response``."""

    http_response: _Http

    def parse(self) -> object: ...


def record_answer(call: Call, result: object, dialect: Dialect) -> None:
    """Record the end of a call: now, or for a stream before its last event is returned to the caller."""
    dump = cast("Callable[..., object] | None", getattr(result, "model_dump", None))
    if dump is not None:
        call.finish("hook", dialect.read_answer(json_text(dump(exclude_unset=True, warnings=False))))
    elif (decoder := getattr(result, _DECODER, None)) is not None:
        setattr(result, _DECODER, _WatchedDecoder(cast("_Decoder", decoder), StreamRecorder(call, dialect)))
    else:
        _record_raw(call, cast("_RawResponse", result), dialect)


def _record_raw(call: Call, response: _RawResponse, dialect: Dialect) -> None:
    http = response.http_response
    if http.is_stream_consumed:
        call.finish("hook", dialect.read_answer(http.content))
        return
    is_raw = http.request.headers.get(_RAW_HEADER) not in (None, "stream")
    parsed = response.parse() if is_raw else None  # cached by the response: the caller gets the same stream
    if iscoroutine(parsed):
        parsed.close()
    if hasattr(parsed, _DECODER):
        record_answer(call, parsed, dialect)
    else:  # the caller reads the bytes itself
        call.finish("hook", CallAnswer(findings=["answer_not_read"]))


class _WatchedDecoder:
    """Wraps the decoder of a stream, and records each event before the caller gets it."""

    def __init__(self, decoder: _Decoder, record: StreamRecorder) -> None:
        self._decoder, self._record = decoder, record

    def iter_bytes(self, iterator: Iterator[bytes]) -> Generator[_Event]:
        try:
            for event in self._decoder.iter_bytes(iterator):
                self._record.add_event(event.data)
                yield event
        finally:
            self._record.end()

    async def aiter_bytes(self, iterator: AsyncIterator[bytes]) -> AsyncGenerator[_Event]:
        try:
            async for event in self._decoder.aiter_bytes(iterator):
                self._record.add_event(event.data)
                yield event
        finally:
            self._record.end()


def call_headers(call: Call) -> dict[str, str]:
    """Return the headers that name call, rollout, span and agent; no agent when its name does not fit a header."""
    rollout, agent = call.scope.rollout, call.scope.agent
    headers = {CALL_HEADER: call.call_id, ROLLOUT_HEADER: rollout.trajectory_id}
    if agent and agent.isascii() and agent.isprintable():
        headers[AGENT_HEADER] = agent
    write_trace(headers, rollout.trace, call.span_id)
    return headers


class SentCall(NamedTuple):
    """A call that is about to be sent."""

    call: Call
    send: Callable[[], object]
    """Sends it, and returns the result, or what is to be awaited for it."""
    record: Callable[[object], object]
    """Records the result, and returns what the caller gets."""


def trace_calls(
    function: Callable[..., object], source: Layer, begin: Callable[..., SentCall | None]
) -> Callable[..., object]:
    """Return a function of the same kind, sync or async, whose calls are recorded.

    Args:
        function: sends requests.
        source: the layer that it is.
        begin: takes the function and its arguments; returns None for what is no call to record.
    """

    @contextmanager
    def failing(sent: SentCall) -> Generator[None]:
        try:
            yield
        except BaseException as error:
            sent.call.fail(source, error)
            raise

    @wraps(function)
    def traced(*args: object, **kwargs: object) -> object:
        sent = begin(function, *args, **kwargs)
        if sent is None:
            return function(*args, **kwargs)
        with failing(sent):
            result = sent.send()
        return sent.record(result)

    @wraps(function)
    async def traced_async(*args: object, **kwargs: object) -> object:
        sent = begin(function, *args, **kwargs)
        if sent is None:
            return await cast("Awaitable[object]", function(*args, **kwargs))
        with failing(sent):
            result = await cast("Awaitable[object]", sent.send())
        return sent.record(result)

    return traced_async if iscoroutinefunction(function) else traced


class Api(NamedTuple):
    """Classes of clients of one library, its paths, and its key headers."""

    client: type
    async_client: type

    dialects: Mapping[str, Dialect]
    """Dialects by path below the base address of the client."""
    root: str
    """Path of the client's address below a gateway's address for one rollout, which ends in /v1: '' or '..'."""
    key_headers: Callable[[str], Mapping[str, str]]
    """Returns the headers that carry a key, in the client's spelling: others would be sent in addition to its own."""


class _Client(Protocol):
    base_url: object
    max_retries: int
    timeout: object

    def close(self) -> object: ...


class _Options(Protocol):
    """Fields of a client's request options that the hook uses."""

    url: str
    headers: object
    json_data: object
    extra_json: Mapping[str, object] | None
    post_parser: Callable[[object], object] | object
    """Makes the result from the answer, for ``parse()``; else a mark that there is none."""

    def model_copy(self, *, update: Mapping[str, object]) -> Self: ...


def trace_client(api: Api) -> None:
    """Trace every request of the library's clients, those for other platforms included: all share one ``request``."""
    for kind in (api.client, api.async_client):
        owner = next(one for one in kind.__mro__ if "request" in one.__dict__)
        request = getattr(owner, "request")  # noqa: B009 - a method of a foreign class, as below
        setattr(owner, "request", trace_calls(request, "hook", partial(_send, api)))  # noqa: B010


def _send(
    api: Api,
    request: Callable[..., object],
    client: object,
    cast_to: object,
    options: _Options,
    **kwargs: object,
) -> SentCall | None:
    call = _begin(api, options)
    return call and SentCall(
        call,
        lambda: request(_find_sender(api, client, call), cast_to, _address(api, options, call), **kwargs),
        partial(_answer, call, dialect=_find_dialect(api, options)),
    )


def _begin(api: Api, options: _Options) -> Call | None:
    """Return the call of this request; None for requests that are no model call, and outside rollouts."""
    scope, dialect = current_scope(), _find_dialect(api, options)
    if scope is None or dialect is None:
        return None
    call = adopt_call(scope, "hook")
    call.call_id = _read_headers(options).get(CALL_HEADER, call.call_id)
    if not call.is_routed:
        body = {**cast("Mapping[str, object]", options.json_data or {}), **(options.extra_json or {})}
        call.record_start(dialect.read_request(body))
    return call


def _find_dialect(api: Api, options: _Options) -> Dialect | None:
    return api.dialects.get(options.url) or api.dialects.get(options.url.partition("?")[0])


def _address(api: Api, options: _Options, call: Call) -> _Options:
    """Return the request with address, key and ids of the call's rollout, and with a parser that loses no answer."""
    dialect = _find_dialect(api, options)
    if callable(options.post_parser) and dialect is not None:
        options = options.model_copy(update={"post_parser": _watch_parser(options.post_parser, call, dialect)})
    rollout = call.scope.rollout
    if not call.is_routed or rollout.base_url is None:
        return options
    ours = {**api.key_headers(rollout.api_key or ""), **call_headers(call)}
    names = {name.lower() for name in ours}
    theirs = {name: value for name, value in _read_headers(options).items() if name.lower() not in names}
    root = rollout.base_url if api.root != ".." else rollout.base_url.rpartition("/")[0]
    return options.model_copy(update={"url": root + options.url, "headers": theirs | ours})


def _watch_parser(parser: Callable[[object], object], call: Call, dialect: Dialect) -> Callable[[object], object]:
    """Return the parser of a caller. An answer that does not parse is recorded as it is, with a finding."""

    def parse(answer: object) -> object:  # a function: clients of platforms copy their options, with all that is inside
        try:
            return parser(answer)
        except Exception as error:
            if call.is_open:  # else it was recorded before, and the caller parses a raw response
                _answer(call, answer, dialect=dialect, error=error)
            raise

    return parse


_SENDERS: WeakKeyDictionary[object, object] = WeakKeyDictionary()


def _find_sender(api: Api, client: object, call: Call) -> object:
    """Return the client that sends the request: for a gateway, the library's own instead of those for other platforms.

    Those sign requests, move paths and read streams in ways of their own, and would send keys of another party.
    """
    library = api.client.__module__.partition(".")[0]
    if not call.is_routed or not any(one.__module__.startswith(f"{library}.lib.") for one in type(client).__mro__):
        return client
    if (sender := _SENDERS.get(client)) is None:
        theirs = cast("_Client", client)
        own = api.async_client if iscoroutinefunction(theirs.close) else api.client
        sender = _SENDERS[client] = own(
            api_key="the key of the rollout",
            base_url=str(theirs.base_url),
            http_client=getattr(client, "_client"),  # noqa: B009 - not public: pool and proxies that the caller chose
            max_retries=theirs.max_retries,
            timeout=theirs.timeout,
        )
    return sender


def _read_headers(options: _Options) -> dict[str, str]:
    headers = options.headers
    return dict(cast("Mapping[str, str]", headers)) if isinstance(headers, Mapping) else {}


def _answer(call: Call, result: object, *, dialect: Dialect | None, error: Exception | None = None) -> object:
    """Record the call, and return its answer.

    Args:
        call: the call.
        result: the answer.
        dialect: its dialect.
        error: why the caller cannot use the answer; None: it is not known that it cannot.
    """
    if call.is_routed or dialect is None:
        call.record_start(capture_level=None)
        call.leave()
    elif error is None:
        record_answer(call, result, dialect)
    else:
        answer = dialect.read_answer(json_text(result))
        found = msgspec.structs.replace(answer, findings=[*answer.findings, NOT_PARSED], error=safe_repr(error)[:2000])
        call.finish("hook", found)
    return result
