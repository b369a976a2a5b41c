"""The contract of a dialect: how a client's request becomes a chat completion, and how its answer goes back.

A dialect may remember texts between calls in an LRU cache that is bounded by bytes.
"""

from collections import OrderedDict
from threading import Lock
from typing import Protocol, TypeAlias

import msgspec

from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.chat_answer import ChatAnswer


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A call whose answer is to be written."""

    request: ChatRequest
    trajectory_id: str
    call_id: str
    model: str
    at: int
    """Seconds since the epoch."""
    num_choices: int = 1
    """Answers that the client asked for."""


class AnswerStream(Protocol):
    """An answer that is still coming."""

    @property
    def is_done(self) -> bool:
        """The engine's closing event has been seen."""
        ...

    @property
    def error(self) -> str | None:
        """What went wrong in the middle."""
        ...

    def feed(self, received: bytes) -> bytes:
        """Add bytes of the engine; return those that the client may see now."""
        ...

    def fail(self, message: str) -> bytes:
        """Record that the engine broke off; return the client's last event."""
        ...

    def answer(self, version: int) -> ChatAnswer:
        """What was received so far, as it is recorded."""
        ...

    @property
    def is_complete(self) -> bool:
        """Every choice that was asked for names why it ended, as far as was read."""
        ...


class Dialect(Protocol):
    """A language in which clients ask."""

    def read(self, body: bytes, trajectory_id: str) -> ChatRequest:
        """Read a client's body.

        Raises: BadInputError: it cannot be understood, or a chat completion cannot express it.
        """
        ...

    def write(self, answer: ChatAnswer, exchange: Exchange) -> bytes:
        """Return the body of a whole answer."""
        ...

    def stream(self, exchange: Exchange) -> AnswerStream:
        """Begin a streamed answer."""
        ...


Name: TypeAlias = tuple[str, str]
"""(trajectory, name of the text in it)."""


class LRUCache:
    """LRU cache of texts, for all rollouts; bounded by bytes. Thread-safe: large requests are read in a thread."""

    def __init__(self, max_bytes: int = 16 << 20) -> None:
        self._lock = Lock()
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._texts: OrderedDict[Name, bytes] = OrderedDict()

    def keep(self, name: Name, text: bytes) -> None:
        """Keep a text."""
        with self._lock:
            self._num_bytes += len(text) - len(self._texts.pop(name, b""))
            self._texts[name] = text
            while self._num_bytes > self._max_bytes:
                _, oldest = self._texts.popitem(last=False)
                self._num_bytes -= len(oldest)

    def find(self, name: Name) -> bytes | None:
        """Find a text, which counts as its use; None: it was never kept, or it was evicted."""
        with self._lock:
            if (found := self._texts.get(name)) is not None:
                self._texts.move_to_end(name)
            return found
