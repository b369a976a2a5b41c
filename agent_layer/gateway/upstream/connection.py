"""One connection to an engine: a request, its answer as it comes, then perhaps the next request."""

import asyncio
from typing import cast

from agent_layer.gateway.upstream.wire import Body, Counted, Head, WireError, choose_framing, read_head

_PAUSE_BYTES = 1 << 20
"""A stream whose reader is so far behind is not read from the socket for now."""
_WRITE_BYTES = 1 << 18
"""A request is given to the socket in pieces of this size."""
_NO_HEAD = Head(0, {}, is_last=True)


class ClosedBeforeResponseError(WireError):
    """The server closed the connection before it said anything."""

    def __init__(self, why: str = "end of file") -> None:
        super().__init__(f"expected an answer, found the connection closed ({why})")


class Connection(asyncio.Protocol):
    """One socket. Only one reader at a time."""

    def __init__(self) -> None:
        self.is_closed = self._is_full = False
        self.idle_since = 0.0
        self.deadline: asyncio.TimerHandle | None = None
        """Ends the wait for an answer."""
        self._begin()

    async def ask(self, head: bytes, body: bytes) -> Head:
        """Send a request, and wait for the head of its answer. What the server does not take yet is not copied.

        Raises: ClosedBeforeResponseError: it was closed without a word. WireError: the answer cannot be read.
        """
        self._begin()
        if self.is_closed:
            raise ClosedBeforeResponseError
        rest = memoryview(body)
        self.transport.write(head + rest[:_WRITE_BYTES])
        while (rest := rest[_WRITE_BYTES:]) and not self.head.status:
            while self._is_full and not self.head.status:
                await self._wait()
            self.transport.write(rest[:_WRITE_BYTES])
        self._is_sent = not rest  # an answer may come before the request has left
        while not self.head.status:
            await self._wait()
        return self.head

    async def read_some(self) -> bytes:
        """What came since the last time, at least something; empty at the end. Raises: WireError."""
        while not self._pieces and not self._body.is_done:
            await self._wait()
        return self._take()

    async def read_all(self) -> bytes:
        """The rest of the body. Raises: WireError."""
        self._wants_all = True
        self._read_on()
        while not self._body.is_done:
            await self._wait()
        return self._take()

    def fail(self, error: WireError) -> None:
        """Let the reader fail, now or when it comes for more."""
        self._error = self._error or error
        self._wake()

    @property
    def is_free(self) -> bool:
        """The answer was read to its end, and the server waits for another request."""
        is_clean = self._body.is_done and not self._body.rest and self._error is None
        return is_clean and self._is_sent and not self.head.is_last and not self.is_closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self.transport = cast("asyncio.Transport", transport)  # TCP and TLS connections have both directions

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            self._read(data)
        except WireError as error:
            self.fail(error)
            self.transport.abort()
        if self._body.is_done or not self._wants_all:
            self._wake()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._is_full = True

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._is_full = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.is_closed = True
        why = exc or "end of file"
        if not self.head.status and not self._unread:
            self.fail(ClosedBeforeResponseError(str(why)))
        elif not self.head.status or not self._body.close():
            self.fail(WireError(f"expected the rest of the answer, found the connection closed ({why})"))
        self._wake()

    def _begin(self) -> None:
        self.head = _NO_HEAD
        self._body: Body = Counted(0)
        self._unread = b""
        """Of a head that is not complete."""
        self._pieces: list[bytes] = []
        self._num_waiting = 0
        """Bytes of the pieces."""
        self._wants_all = self._is_paused = self._is_sent = False
        self._error: WireError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def _read(self, received: bytes) -> None:
        if not self.head.status:
            head, received = read_head(self._unread + received)
            if head is None:
                self._unread = received
                return
            self._body, self.head = choose_framing(head), head
        if content := self._body.feed(received):
            self._pieces.append(content)
            self._num_waiting += len(content)
            if self._num_waiting > _PAUSE_BYTES and not self._wants_all:
                self._is_paused = True
                self.transport.pause_reading()

    def _take(self) -> bytes:
        pieces, self._pieces, self._num_waiting = self._pieces, [], 0
        self._read_on()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_on(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()

    async def _wait(self) -> None:
        if self._error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._error is not None:
            raise self._error

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)
