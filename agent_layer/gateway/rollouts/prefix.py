"""Prefix table: recognises a sequence as the continuation of an earlier one, by lengths and hashes alone.

Of each sequence it keeps only (length, hash, key), so a rollout of many long prompts costs a few hundred bytes a step.
It hashes a new sequence once, from its beginning, and looks up every length that an earlier one had.
"""

from bisect import bisect_left
from collections.abc import Callable
from hashlib import blake2b
from typing import Generic, TypeVar

import msgspec

K = TypeVar("K")


class Match(msgspec.Struct, Generic[K], frozen=True):
    """The longest earlier sequence with which a new one begins."""

    key: K
    length: int
    """Bytes."""
    hash: str
    """Content hash of the earlier sequence."""


class Hashed(msgspec.Struct, frozen=True):
    """A hash that can go on: of a sequence, and then of what continues it."""

    digest: blake2b
    length: int
    """Bytes that it covers."""

    @property
    def hash(self) -> str:
        """The same as ``content_hash`` of the sequence."""
        return self.digest.hexdigest()

    def extended(self, more: bytes) -> "Hashed":
        """The hash of this sequence and more; this one stays as it is."""
        digest = self.digest.copy()
        digest.update(more)
        return Hashed(digest, self.length + len(more))


class PrefixTable(Generic[K]):
    """Sequences of one rollout."""

    __slots__ = ("_keys", "_lengths")

    def __init__(self) -> None:
        self._keys: dict[tuple[int, str], K] = {}
        self._lengths: list[int] = []  # each once, ascending

    def find(self, sequence: bytes) -> tuple[Match[K] | None, Hashed]:
        """Find the longest earlier sequence with which this one begins; equal ones count.

        Returns: the match, and the hash of this sequence.
        """
        match, digest, hashed = None, blake2b(digest_size=16), 0
        view = memoryview(sequence)
        for length in self._lengths:
            if length > len(sequence):
                break
            digest.update(view[hashed:length])
            hashed = length
            if (key := self._keys.get((length, name := digest.hexdigest()))) is not None:
                match = Match(key, length, name)
        digest.update(view[hashed:])
        return match, Hashed(digest, len(sequence))

    def add(self, sequence: Hashed, key: K) -> None:
        """Keep a sequence; of equal ones the last."""
        place = bisect_left(self._lengths, sequence.length)
        if self._lengths[place : place + 1] != [sequence.length]:
            self._lengths.insert(place, sequence.length)
        self._keys[sequence.length, sequence.hash] = key

    def keep_only(self, is_wanted: Callable[[K], bool]) -> None:
        """Let go of all other sequences."""
        self._keys = {place: key for place, key in self._keys.items() if is_wanted(key)}
        self._lengths = sorted({length for length, _ in self._keys})
