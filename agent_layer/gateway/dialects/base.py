"""This file holds what a dialect is: how a client's request becomes a chat completion, and its answer goes back.

This file holds what translated answers say in numbers: how many tokens there were, and on demand which.

This file holds how translated requests are put together: messages, tools, and what goes to the engine.

This file holds what dialects remember between calls: texts by name, up to a number of bytes, the unused let go.
"""

from collections import OrderedDict
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
    """So many answers were asked for."""


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
        """Take bytes of the engine; give those that the client is to see now."""
        ...

    def fail(self, message: str) -> bytes:
        """Note that the engine broke off; give what tells the client."""
        ...

    def answer(self, version: int) -> ChatAnswer:
        """What was received so far, as it is recorded."""
        ...

    @property
    def is_complete(self) -> bool:
        """Every choice that was asked for has said why it ended, as far as was read."""
        ...


class Dialect(Protocol):
    """A language in which clients ask."""

    def read(self, body: bytes, trajectory_id: str) -> ChatRequest:
        """Read a client's body.

        Raises: BadInputError: it cannot be understood, or a chat completion has no place for what it wants.
        """
        ...

    def write(self, answer: ChatAnswer, exchange: Exchange) -> bytes:
        """Give the body of a whole answer."""
        ...

    def stream(self, exchange: Exchange) -> AnswerStream:
        """Begin a streamed answer."""
        ...


Name: TypeAlias = tuple[str, str]
"""(trajectory, name of the text in it)."""


class LRUCache:
    """Texts of all rollouts."""

    def __init__(self, max_bytes: int = 16 << 20) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._texts: OrderedDict[Name, bytes] = OrderedDict()

    def keep(self, name: Name, text: bytes) -> None:
        """Put a text on the shelf."""
        self._num_bytes += len(text) - len(self._texts.pop(name, b""))
        self._texts[name] = text
        while self._num_bytes > self._max_bytes:
            _, oldest = self._texts.popitem(last=False)
            self._num_bytes -= len(oldest)

    def find(self, name: Name) -> bytes | None:
        """Find a text, which counts as its use; None: it was never kept, or it was let go."""
        if (found := self._texts.get(name)) is not None:
            self._texts.move_to_end(name)
        return found
