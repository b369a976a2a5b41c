"""The contract of a dialect: how a client's request becomes a chat completion, and how its answer goes back.

What a dialect remembers between calls, it keeps with their rollout, in an LRU cache that is bounded by bytes.
"""

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import Protocol

import msgspec

from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.schema import content_hash


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A call whose answer is to be written."""

    request: ChatRequest
    memory: "LRUCache"
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

    def read(self, body: bytes, memory: "LRUCache") -> ChatRequest:
        """Read a client's body.

        Args:
            body: JSON text.
            memory: what earlier exchanges of the rollout left.

        Raises: BadInputError: it cannot be understood, or a chat completion cannot express it.
        """
        ...

    def write(self, answer: ChatAnswer, exchange: Exchange) -> bytes:
        """Return the body of a whole answer."""
        ...

    def stream(self, exchange: Exchange) -> AnswerStream:
        """Begin a streamed answer."""
        ...


class LRUCache:
    """LRU cache of one rollout's texts, by name. Thread-safe: large requests are read in a thread.

    It holds as much as the largest body by default: a conversation that is longer could not be sent whole either.
    """

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._lock = Lock()
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._texts: OrderedDict[str, bytes] = OrderedDict()

    def keep(self, name: str, text: bytes) -> None:
        """Keep a text."""
        with self._lock:
            self._num_bytes += len(text) - len(self._texts.pop(name, b""))
            self._texts[name] = text
            while self._num_bytes > self._max_bytes:
                _, oldest = self._texts.popitem(last=False)
                self._num_bytes -= len(oldest)

    def find(self, name: str) -> bytes | None:
        """Find a text, which counts as its use; None: it was never kept, or it was evicted."""
        with self._lock:
            if (found := self._texts.get(name)) is not None:
                self._texts.move_to_end(name)
            return found

    def forget(self, name: str) -> None:
        """Remove a text, if it is there."""
        with self._lock:
            self._num_bytes -= len(self._texts.pop(name, b""))

    def keep_messages(self, messages: Iterable[bytes | msgspec.Raw]) -> list[str]:
        """Keep messages, each once however many conversations have it; return their names."""
        return [self._keep_once(content_hash(message), message) for message in messages]

    def keep_turn(self, request: ChatRequest, begin: int, answer: msgspec.Raw | None) -> list[str]:
        """Keep the messages of a request from here on, and its answer if there is one; return their names."""
        facts = zip(request.facts[begin:], request.messages[begin:], strict=True)
        names = [self._keep_once(one.hash, message) for one, message in facts]
        return names if answer is None else [*names, *self.keep_messages([answer])]

    def _keep_once(self, name: str, message: bytes | msgspec.Raw) -> str:
        if self.find(name) is None:
            self.keep(name, bytes(message))
        return name

    def find_messages(self, names: Iterable[str]) -> list[msgspec.Raw] | None:
        """Find messages by name; None: one of them was evicted."""
        found = [self.find(name) for name in names]
        return None if None in found else [msgspec.Raw(text) for text in found if text is not None]
