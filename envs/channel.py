"""Channel between two processes of one machine: messages over a stream socket, each behind its length."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from agent_layer.errors import AgentLayerError
from agent_layer.schema import UNREADABLE

T = TypeVar("T")

_LENGTH_BYTES = 4
MAX_MESSAGE_LENGTH = 1 << 28
"""Bytes of one message; a larger announcement is not this protocol, and would fill the receiver's memory."""
_SMALL_LENGTH = 1 << 16
"""Messages up to this length need no room: this many bytes more or less come at once."""
_BODY_SECONDS = 30.0
"""Seconds for a message with room to be whole: one that is not keeps others waiting."""
_ENCODER = msgspec.msgpack.Encoder()
_log = logging.getLogger(__name__)


class ChannelClosedError(AgentLayerError):
    """The process at the other end is gone."""

    def __init__(self) -> None:
        super().__init__("channel of a host process: the process at its other end is gone")


class Room(Protocol):
    """Where the bodies of long messages find memory; a ``ByteBudget`` is one."""

    async def acquire(self, num_bytes: int, /) -> None:
        """Wait for it."""
        ...

    def release(self, num_bytes: int, /) -> None:
        """Return it."""
        ...


class Channel(asyncio.Protocol, Generic[T]):
    """One end of a connection between two processes of one machine, in an event loop.

    Args:
        decoder: decodes messages of the other end.
        on_message: called with each message.
        longest: bytes of a message of the other end; a larger one ends the connection.
    """

    def __init__(
        self, decoder: msgspec.msgpack.Decoder[T], on_message: Callable[[T], None], longest: int = MAX_MESSAGE_LENGTH
    ) -> None:
        self._decoder = decoder
        self._on_message = on_message
        self.longest = longest
        self.room: Room | None = None
        """Of bodies that the other end sends; None: they need none."""
        self._num_held = 0
        """Bytes of room that the message in question has."""
        self._waiting: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the other end is gone, or this one is closed."""

    def send(self, message: msgspec.Struct) -> None:
        """Send a message; it is dropped when the other end is gone.

        Raises: OverflowError, TypeError, ValueError: the message cannot be encoded, or is too large.
        """
        body = _ENCODER.encode(message)
        if len(body) > MAX_MESSAGE_LENGTH:
            raise ValueError(f"a message of {len(body):,} bytes is larger than {MAX_MESSAGE_LENGTH:,}")
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(len(body).to_bytes(_LENGTH_BYTES, "big") + body)

    async def drain(self) -> None:
        """Wait until the other end has read most of what was sent, or is gone."""
        await self._has_room.wait()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._has_room.clear()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._has_room.set()

    def abort(self) -> None:
        """Close the connection at once, and drop what has not been sent."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection after all messages have been sent."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._received += data
        try:
            self._deliver_all()
        except (ValueError, *UNREADABLE) as error:  # an agent that writes to what it did not open
            _log.warning("closed the channel of a process that sent something else error=%s", error)
            assert self._transport is not None
            self._transport.abort()

    def take_held(self) -> int:
        """Return the bytes of room that the message being delivered has; who calls this releases them."""
        held, self._num_held = self._num_held, 0
        return held

    def _deliver_all(self) -> None:
        begin = 0
        while (end := self._find_end(begin)) is not None:
            message = self._decoder.decode(memoryview(self._received)[begin + _LENGTH_BYTES : end])
            begin = end
            if self._num_held:  # its body is in memory once from now on
                self._received, begin = self._received[begin:], 0
            if self._deadline is not None:
                self._deadline.cancel()
            self._on_message(message)
            self._release()
        if begin:
            self._received = self._received[begin:]

    def _find_end(self, begin: int) -> int | None:
        """Return where the message that begins here ends; None: part of it has not arrived, or has no room."""
        if len(self._received) < begin + _LENGTH_BYTES or self._waiting is not None:
            return None
        length = int.from_bytes(self._received[begin : begin + _LENGTH_BYTES], "big")
        if length > self.longest:
            raise ValueError(f"an announced message of {length:,} bytes is larger than {self.longest:,}")
        if self.room is not None and length > _SMALL_LENGTH and not self._num_held:
            self._waiting = asyncio.get_running_loop().create_task(self._wait_for_room(self.room, length))
            return None
        end = begin + _LENGTH_BYTES + length
        return end if end <= len(self._received) else None

    async def _wait_for_room(self, room: Room, length: int) -> None:
        """Read on when there is room for a body."""
        assert self._transport is not None
        self._transport.pause_reading()
        await room.acquire(length)
        self._num_held, self._waiting = length, None
        self._deadline = asyncio.get_running_loop().call_later(_BODY_SECONDS, self.abort)
        self._transport.resume_reading()
        self.data_received(b"")

    def _release(self) -> None:
        if (held := self.take_held()) and self.room is not None:
            self.room.release(held)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # for whatever reason
        """See asyncio.Protocol."""
        self._has_room.set()
        if self._waiting is not None:
            self._waiting.cancel()
        if self._deadline is not None:
            self._deadline.cancel()
        self._release()
        if not self.closed.done():
            self.closed.set_result(None)


async def connect(
    end: socket.socket, decoder: msgspec.msgpack.Decoder[T], on_message: Callable[[T], None]
) -> Channel[T]:
    """Open a channel over a connected socket, which it owns from now on."""
    end.settimeout(0.0)
    loop = asyncio.get_running_loop()
    _, channel = await loop.create_unix_connection(lambda: Channel(decoder, on_message), sock=end)
    return channel


def send_blocking(end: socket.socket, message: msgspec.Struct) -> None:
    """Send a message before there is an event loop.

    Raises: ChannelClosedError: the other end is gone.
    """
    body = _ENCODER.encode(message)
    try:
        end.sendall(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
    except ConnectionError as error:
        raise ChannelClosedError from error


def receive_blocking(end: socket.socket, kind: type[T]) -> T:
    """Wait for a message of this kind before there is an event loop.

    Raises: ChannelClosedError: the other end is gone.
    """
    body = _receive(end, int.from_bytes(_receive(end, _LENGTH_BYTES), "big"))
    return msgspec.msgpack.decode(body, type=kind)


async def receive_first(end: socket.socket, kind: type[T]) -> T:
    """As ``receive_blocking``, in an event loop; over a socket that does not block and has no channel yet."""
    length = int.from_bytes(await _receive_in_loop(end, _LENGTH_BYTES), "big")
    return msgspec.msgpack.decode(await _receive_in_loop(end, length), type=kind)


def _receive(end: socket.socket, num_bytes: int) -> bytes:
    received = b""
    while len(received) < num_bytes:
        try:
            piece = end.recv(num_bytes - len(received))
        except ConnectionError as error:
            raise ChannelClosedError from error
        if not piece:
            raise ChannelClosedError
        received += piece
    return received


async def _receive_in_loop(end: socket.socket, num_bytes: int) -> bytes:
    loop, received = asyncio.get_running_loop(), b""
    while len(received) < num_bytes:
        if not (piece := await loop.sock_recv(end, num_bytes - len(received))):
            raise ChannelClosedError
        received += piece
    return received
