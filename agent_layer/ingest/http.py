"""Access control of ``ingest`` (its own key or the operator's), and request bodies: read and unpacked piece by piece.

Each piece counts against the memory of ``ingest`` before the next one is read or unpacked: a body of some kilobytes may
become one of many megabytes.
"""

import asyncio
import hmac
import zlib
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from threading import Lock
from traceback import clear_frames
from typing import Protocol, TypeVar

import zstandard
from aiohttp import hdrs, web

from agent_layer.errors import BackPressureError, BadInputError
from agent_layer.settings import Settings

T = TypeVar("T")

_PIECE_BYTES = 1 << 16
_ZSTD_PIECE_BYTES = 1 << 8
"""Size of packed pieces of zstd; four bytes may become 128 KB."""
_MAX_WINDOW_BYTES = 8 << 20
"""Largest window of a zstd frame, as RFC 9659 has it."""
_MAX_MEMBERS = 1_024
"""Largest number of members or frames of one body; each takes time of its own."""
_CODINGS = ("gzip", "deflate", "zstd")
REFUSALS = (BadInputError, BackPressureError, web.HTTPRequestEntityTooLarge)
"""What ``ingest`` answers itself: an answer that aiohttp makes of an error is in a cycle with the body that it saw."""
_UNPACKING = ThreadPoolExecutor(1, "unpack bodies")
"""One after the other: a piece is counted only after it is unpacked."""


class IngestKeys:
    """Checks keys.

    Raises: BadInputError: there is none.
    """

    def __init__(self, settings: Settings) -> None:
        self._keys = [key.encode() for key in (settings.api_key, settings.ingest_key) if key]
        if not self._keys:
            raise BadInputError("ingest: expected a key, found none; set AGENT_LAYER_INGEST_KEY or AGENT_LAYER_API_KEY")

    def is_allowed(self, request: web.Request) -> bool:
        """Whether the request carries a valid key, compared in constant time."""
        scheme, _, key = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        sent_key = key.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
        encoded_key = sent_key.encode("utf-8", "surrogateescape")
        matches = [hmac.compare_digest(encoded_key, known) for known in self._keys]  # constant time: compare all keys
        return any(matches)


class IngestMemory:
    """Bytes that requests hold in memory: bodies, packed and unpacked. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self.turn = Lock()

    @contextmanager
    def hold(self) -> Generator["HeldBytes"]:
        """Hold what a request grows to, until the end of the block."""
        held = HeldBytes(self)
        try:
            yield held
        finally:
            held.release()


class HeldBytes:
    """Bytes of one request. One that is alone gets as many as it needs."""

    def __init__(self, memory: IngestMemory) -> None:
        self._memory = memory
        self._num_bytes = 0
        self._is_released = False

    def grow(self, num_bytes: int) -> None:
        """Hold more bytes, or fewer.

        Raises: BackPressureError: too many bytes are in memory, or the request has ended.
        """
        memory = self._memory
        with memory.turn:
            is_beside_others = memory.num_bytes > self._num_bytes
            is_full = num_bytes > 0 and memory.num_bytes + num_bytes > memory.max_bytes
            if self._is_released or (is_full and is_beside_others):
                raise BackPressureError("ingest: expected room for another body, found none; send it again later")
            memory.num_bytes += num_bytes
            self._num_bytes += num_bytes

    def release(self) -> None:
        """Hold nothing any more; a thread that still unpacks the body stops at its next piece."""
        with self._memory.turn:
            self._memory.num_bytes -= self._num_bytes
            self._num_bytes, self._is_released = 0, True


async def run_in_thread(work: Callable[[], T], threads: Executor | None = None) -> T:
    """Return the result of work done in a thread (None: in any). An error holds nothing of what the work held.

    Else the pieces of refused bodies stay until the loop answers each, while the thread unpacks the next ones.
    """

    def run() -> T:
        try:
            return work()
        except Exception as error:
            _release_frames(error)
            raise

    return await asyncio.get_running_loop().run_in_executor(threads, run)


def _release_frames(error: BaseException | None) -> None:  # kept: in the frames of the error it would be a cycle
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__context__


def describe_refusal(error: Exception, subject: str, max_bytes: int) -> tuple[int, str]:
    """Return the status and the reason with which one of REFUSALS is answered."""
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return 413, f"{subject}: expected {max_bytes} bytes at most, found more; send less at once"
    return (400 if isinstance(error, BadInputError) else 503), str(error)


async def read_body(request: web.Request, subject: str, held: HeldBytes) -> bytes:
    """Read a request body and undo its content encoding.

    Raises:
        BadInputError: its content does not match its encoding header, or nothing here undoes that encoding.
        BackPressureError: too many bytes are in memory.
        HTTPRequestEntityTooLarge: it is too long.
    """
    coding = ", ".join(request.headers.getall(hdrs.CONTENT_ENCODING, [])).lower()
    is_packed = coding not in ("", "identity")
    if is_packed and coding not in _CODINGS:
        raise BadInputError(f"{subject}: expected a body that is plain or {' or '.join(_CODINGS)}, found {coding!r}")
    body = BytesIO()
    try:
        async for piece in request.content.iter_any():
            held.grow(len(piece))
            if body.tell() + len(piece) > request.client_max_size:
                raise web.HTTPRequestEntityTooLarge(request.client_max_size, body.tell() + len(piece))
            body.write(piece)
    except web.RequestPayloadError as error:
        raise BadInputError(
            f"{subject}: expected a body that is {coding or 'plain'}, found another; check the exporter, or whatever"
            " sends it"
        ) from error
    is_unpacked = getattr(request.content, "total_compressed_bytes", None) is not None  # by the server already
    if not is_packed or is_unpacked or not body.tell():
        return body.getvalue()
    packed, longest = body.getvalue(), request.client_max_size
    unpacked = await run_in_thread(lambda: unpack(packed, coding, subject, longest, held), _UNPACKING)
    held.grow(-body.tell())
    return unpacked


def unpack(packed: bytes, coding: str, subject: str, max_bytes: int, held: HeldBytes) -> bytes:
    """Undo gzip or deflate of any number of members, or zstd of any number of frames.

    The unpacked bytes are held beside the packed ones, which the caller may still need.

    Raises:
        BadInputError: it is packed in another way, or cut off.
        BackPressureError: too many bytes are in memory.
        HTTPRequestEntityTooLarge: it becomes larger than ``max_bytes``.
    """
    body = BytesIO()
    try:
        for piece in _unpack_pieces(packed, coding):
            held.grow(len(piece))
            if body.tell() + len(piece) > max_bytes:
                raise web.HTTPRequestEntityTooLarge(max_bytes, body.tell() + len(piece))
            body.write(piece)
    except (zlib.error, zstandard.ZstdError) as error:
        raise BadInputError(
            f"{subject}: expected a body that is {coding}, found no whole {coding} body ({error}); check the exporter,"
            " or whatever sends it"
        ) from error
    return body.getvalue()


def _unpack_pieces(packed: bytes, coding: str) -> Iterator[bytes]:
    """Yield what comes out of small pieces, each at most 8 MB.

    Raises: zlib.error, ZstdError: the bytes are packed in another way, or end too early.
    """
    view, at = memoryview(packed), 0
    for _ in range(_MAX_MEMBERS):
        unpacker, step, length = _begin_member(coding, packed[at : at + 1])
        rest = view[:0]
        while not unpacker.eof:
            if not rest:
                rest = view[at : at + length]
                at += len(rest)
            piece = step(rest)
            if not piece and not rest:
                raise zlib.error("it is cut off")
            yield piece
            rest = memoryview(unpacker.unconsumed_tail)
        at -= len(unpacker.unused_data)
        if at == len(view):
            return
    raise zlib.error(f"it has more than {_MAX_MEMBERS} members")


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...


def _begin_member(coding: str, first: bytes) -> tuple[_Unpacker, Callable[[bytes | memoryview], bytes], int]:
    """Return the unpacker of a member, how it unpacks a piece, and how long its pieces are."""
    if coding == "zstd":
        unpacker = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj()
        return unpacker, unpacker.decompress, _ZSTD_PIECE_BYTES
    is_bare = coding == "deflate" and first and first[0] & 15 != zlib.DEFLATED
    inflater = zlib.decompressobj(-zlib.MAX_WBITS if is_bare else zlib.MAX_WBITS | 32)  # 32: either of both headers
    return inflater, lambda piece: inflater.decompress(piece, _PIECE_BYTES), _PIECE_BYTES
