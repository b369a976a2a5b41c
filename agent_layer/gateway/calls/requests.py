"""Bodies and headers of requests: text for the record, records for the routes, retry key."""

import asyncio
import zlib
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec
from aiohttp import hdrs, web

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.gateway.rollouts.retries import RetryKey
from agent_layer.schema import CALL_HEADER, UNREADABLE, BodyBounds, check_bounds, check_name, check_storable

B = TypeVar("B", bound=msgspec.Struct)
T = TypeVar("T")

BODY_BOUNDS: Final = web.AppKey("body_bounds", BodyBounds)
_INLINE_BYTES: Final = 1 << 16
"""What is larger is worked on in a thread."""
_LARGE_BODIES: Final = ThreadPoolExecutor(1, "large bodies")
"""One after the other: threads that read side by side would only keep the event loop waiting for the interpreter."""
_UNPACKED: Final = web.RequestKey("unpacked", bytes)
_CODINGS: Final = frozenset({"identity", "gzip", "deflate"})
_MAX_DIGITS = 9


async def read_text(request: web.Request) -> bytes:
    """Read the body as text. Its parts are recorded as they came, so bytes that are no text could never be read again.

    Raises:
        BadInputError: it is not UTF-8, not compressed as its header says, or holds more than its bounds.
        RefusedError: it is compressed in a way that the gateway cannot undo.
    """
    codings = ", ".join(request.headers.getall(hdrs.CONTENT_ENCODING, ["identity"]))
    if codings.lower() not in _CODINGS:
        raise RefusedError(
            415,
            "unsupported_encoding",
            f"{request.method} {request.path}: expected a body that is plain, gzip or deflate, found {codings!r}; send"
            " it plain",
        )
    try:
        body = await _read_bytes(request)
        await in_background(len(body), lambda: _check_text(body, request))
    except (web.RequestPayloadError, zlib.error) as error:
        coding = request.headers.get(hdrs.CONTENT_ENCODING)
        raise BadInputError(
            f"{request.method} {request.path}: expected a whole body, {coding or 'plain'} as its header says, found"
            " another; correct the body or the header"
        ) from error
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"{request.method} {request.path}: expected a body in UTF-8, found {error}; correct the body"
        ) from error
    return body


def body_size(request: web.Request) -> int:
    """Bytes that the body takes at most once it is unpacked."""
    is_plain = hdrs.CONTENT_ENCODING not in request.headers and request.content_length is not None
    return (request.content_length or 0) if is_plain else request.client_max_size


async def _read_bytes(request: web.Request) -> bytes:
    """Return the whole body, unpacked.

    Raises:
        BadInputError: it is not packed as its header says.
        HTTPRequestEntityTooLarge: it is longer than the application allows.
    """
    body, coding = await request.read(), request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower()
    if coding == "identity" or not body:
        return body
    if (unpacked := request.get(_UNPACKED)) is None:
        most = request.client_max_size
        unpacked = request[_UNPACKED] = await in_background(most, lambda: _unpack(body, coding, most))
    return unpacked


def _unpack(body: bytes, coding: str, most: int) -> bytes:
    """Undo gzip or deflate, also deflate without its header.

    Raises: zlib.error: the body is something else. HTTPRequestEntityTooLarge: more comes out.
    """
    is_bare = coding == "deflate" and body[0] & 15 != zlib.DEFLATED
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS if is_bare else zlib.MAX_WBITS | 32)  # 32: either of both headers
    unpacked = unpacker.decompress(body, most + 1)
    if len(unpacked) > most:
        raise web.HTTPRequestEntityTooLarge(most, len(unpacked))
    if not unpacker.eof or unpacker.unused_data:
        raise zlib.error("it is cut off, or something follows it")
    return unpacked


def is_large(num_bytes: int) -> bool:
    """Whether work on this many bytes is done in a thread."""
    return num_bytes > _INLINE_BYTES


async def in_background(num_bytes: int, work: Callable[[], T]) -> T:
    """Return the result of work on a body, done in a thread when the body is large: other requests go on meanwhile."""
    if not is_large(num_bytes):
        return work()
    return await asyncio.get_running_loop().run_in_executor(_LARGE_BODIES, work)


def _check_text(body: bytes, request: web.Request) -> None:
    check_bounds(body, request.app[BODY_BOUNDS], f"{request.method} {request.path}")
    if not body.isascii():
        decoder = getincrementaldecoder("utf-8")()
        for begin in range(0, len(body), _INLINE_BYTES):
            decoder.decode(body[begin : begin + _INLINE_BYTES])
        decoder.decode(b"", final=True)


async def read_body(request: web.Request, kind: type[B]) -> B:
    """Read the body as a record.

    Raises: BadInputError: it is none of this kind, or an integer has more than 64 bits.
    """
    body, subject = await read_text(request), f"{request.method} {request.path}"

    def read() -> B:
        record = msgspec.json.decode(body or b"{}", type=kind)
        check_storable(record, subject)
        return record

    try:
        return await in_background(len(body), read)
    except UNREADABLE as error:
        raise BadInputError(f"{subject}: {error}; correct the body") from error


def retry_key(headers: Mapping[str, str], digest: int, agent: str | None, *, is_streamed: bool) -> RetryKey:
    """Return what identifies a request as a retry.

    Raises: BadInputError: its call id cannot stand in records.
    """
    retries, call_id = headers.get("x-stainless-retry-count", "0"), headers.get(CALL_HEADER)
    return RetryKey(
        call_id=None if call_id is None else check_name(call_id, f"header {CALL_HEADER}"),
        idempotency_key=headers.get("idempotency-key"),
        retry_count=int(retries[:_MAX_DIGITS]) if retries.isdecimal() else 0,
        digest=digest,
        agent=agent,
        is_streamed=is_streamed,
    )
