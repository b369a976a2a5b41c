"""The newest messages of all streams: numbered, kept once, and bounded also where a reader is slow."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from agent_layer.view.answers.events import Change

KEPT: Final = 512
"""Messages kept: at two rounds a second with a few kinds each, about a minute."""


class Message(NamedTuple):
    """One message, as it is sent."""

    number: int
    change: Change
    body: bytes


class Ring:
    """Messages by number; readers hold the number that they have reached, and nothing else is kept for them."""

    def __init__(self, name: str, size: int = KEPT) -> None:
        """Start empty.

        Args:
            name: of this server's life; places of another one are not known.
            size: messages kept.
        """
        self._name = name
        self._newest = 0
        self._is_filled = False
        self._messages: deque[Message] = deque(maxlen=size)
        self._news = asyncio.Event()

    @property
    def newest(self) -> int:
        """Number of the newest message."""
        return self._newest

    @property
    def is_filled(self) -> bool:
        """Whether a watcher follows the store: readers of the store hear of each change after their reading."""
        return self._is_filled

    def fill(self) -> None:
        """Record that a watcher follows the store, and wake readers."""
        self._is_filled = True
        self.wake()

    def publish(self, changes: Iterable[Change]) -> None:
        """Append messages, and wake readers."""
        for change in changes:
            self._newest += 1
            body = _frame(self.place(self._newest), change.kind, msgspec.json.encode(change))
            self._messages.append(Message(self._newest, change, body))
        self.wake()

    def lose(self) -> None:
        """Forget all messages: something was missed, so every reader has to reload."""
        self._messages.clear()
        self._newest += 1
        self.wake()

    def wake(self) -> None:
        """Wake all readers."""
        self._news.set()
        self._news = asyncio.Event()

    def after(self, number: int) -> list[Message] | None:
        """Return the messages behind a number; None: some of them are not kept."""
        if not 0 <= self._newest - number <= len(self._messages):
            return None
        return [one for one in self._messages if one.number > number]

    async def wait(self, number: int, seconds: float) -> None:
        """Wait until there is a message behind a number, or until ``wake``, for some seconds at most."""
        news = self._news
        if self._newest > number:
            return
        try:
            async with asyncio.timeout(seconds):
                await news.wait()
        except TimeoutError:
            return

    def place(self, number: int) -> str:
        """Return what a browser sends back as ``Last-Event-ID``."""
        return f"{self._name}-{number}"

    def number(self, place: str) -> int | None:
        """Return the number of a place; None: it is not one of this server's life."""
        name, _, number = place.rpartition("-")
        is_known = name == self._name and number.isascii() and number.isdecimal() and len(number) < 20
        return int(number) if is_known else None

    def reload(self) -> bytes:
        """Return the message that asks a page to read everything again."""
        return _frame(self.place(self._newest), "reload", b"{}")

    def ready(self, number: int) -> bytes:
        """Return the first message of a stream, which tells its place."""
        return _frame(self.place(number), "ready", b"{}")

    def heartbeat(self, number: int) -> bytes:
        """Return what keeps a quiet connection open; it also tells the place."""
        return f": heartbeat\nid: {self.place(number)}\n\n".encode()


def _frame(place: str, kind: str, content: bytes) -> bytes:
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (place.encode(), kind.encode(), content)
