"""Memo of what JSON texts hold: with every turn, an agent sends its whole conversation again.

A text is known by its content hash. What is found in it follows from it alone, so all rollouts share a memo.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

T = TypeVar("T")

_ENTRY_BYTES: Final = 256
"""What an entry takes beside the texts in it."""


class TextMemo(Generic[T]):
    """What a pure function returned for texts. Thread-safe: large requests are read in a thread.

    A full memo is emptied. Conversations that take turns would evict each other from an LRU cache just before they need
    their texts again.

    Args:
        read: the function of a text and its content hash. It keeps nothing of the text, which may be a piece of a body
            and would keep all of that in memory.
        max_bytes: of all results together. One that is larger is not remembered.
        measure: returns the bytes of what is in a result, whatever a client made of it.
    """

    def __init__(
        self,
        read: Callable[[str, msgspec.Raw], T],
        max_bytes: int = 16 << 20,
        measure: Callable[[T], int] = lambda _: 0,
    ) -> None:
        self._read = read
        self._max_bytes = max_bytes
        self._measure = measure
        self._found: dict[str, T] = {}
        self._num_bytes = 0

    def find(self, name: str, text: msgspec.Raw) -> T:
        """Return what the function returns for a text.

        Args:
            name: content hash of the text.
            text: JSON.

        Raises: what the function raises, which is not remembered.
        """
        if (known := self._found.get(name)) is not None:
            return known
        found = self._read(name, text)
        num_bytes = self._measure(found) + _ENTRY_BYTES
        if num_bytes > self._max_bytes:
            return found
        if self._num_bytes + num_bytes > self._max_bytes:
            self._found.clear()
            self._num_bytes = 0
        self._num_bytes += num_bytes
        self._found[name] = found
        return found
