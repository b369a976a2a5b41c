"""This file holds how a sequence is recognised as the continuation of an earlier one, by lengths and hashes alone.

Of each sequence only (length, hash, key) is kept, so a rollout of many long prompts costs a few hundred bytes a step.
A new sequence is hashed once, from its beginning, with a look at every length that an earlier one had.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Hasher", "Match", "PrefixTable"]

K = TypeVar("K")


class Match(NamedTuple, Generic[K]):
    """The longest earlier sequence with which a new one begins."""

    key: K
    length: int
    """Bytes."""
    hash: str
    """Content hash of the earlier sequence."""


class Hasher:
    """A content hash that can go on: of a sequence, and then of what continues it."""

    def __init__(self, sequence: bytes = b"") -> None:
        self.length = len(sequence)
        self._digest = blake2b(sequence, digest_size=16)

    def extend(self, more: bytes | memoryview) -> None:
        """Add bytes at the end."""
        self.length += len(more)
        self._digest.update(more)

    def extended(self, more: bytes) -> "Hasher":
        """The hash of this sequence and more; this one stays as it is."""
        longer = Hasher()
        longer.length, longer._digest = self.length, self._digest.copy()
        longer.extend(more)
        return longer

    @property
    def hash(self) -> str:
        """The same as ``content_hash`` of the whole."""
        return self._digest.hexdigest()


@dataclass(slots=True)
class PrefixTable(Generic[K]):
    """Sequences of one rollout."""

    _keys: dict[tuple[int, str], K] = field(default_factory=dict[tuple[int, str], K])
    _lengths: list[int] = field(default_factory=list[int])
    """All lengths, each once, ascending."""

    def find(self, sequence: bytes) -> tuple[Match[K] | None, Hasher]:
        """Find the longest earlier sequence with which this one begins; equal ones count.

        Returns: the match, and the hash of this sequence.
        """
        match, hasher, view = None, Hasher(), memoryview(sequence)
        for length in self._lengths:
            if length > len(sequence):
                break
            hasher.extend(view[hasher.length : length])
            if (key := self._keys.get((length, hasher.hash))) is not None:
                match = Match(key, length, hasher.hash)
        hasher.extend(view[hasher.length :])
        return match, hasher

    def add(self, hasher: Hasher, key: K) -> None:
        """Keep a sequence; of equal ones the last."""
        place = bisect_left(self._lengths, hasher.length)
        if self._lengths[place : place + 1] != [hasher.length]:
            self._lengths.insert(place, hasher.length)
        self._keys[hasher.length, hasher.hash] = key
