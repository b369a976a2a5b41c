"""This file holds what dialects remember between calls: texts by name, up to a number of bytes, the unused let go."""

from collections import OrderedDict
from typing import TypeAlias

__all__ = ["Name", "TextShelf"]

Name: TypeAlias = tuple[str, str]
"""(trajectory, name of the text in it)."""


class TextShelf:
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
