"""Similarity of texts: the Jaccard index of their sets of 8-grams, from sketches of bounded size.

A sketch is the k smallest hashes of a set (bottom-k; Broder 1997, On the resemblance and containment of documents). Up
to k grams it is the whole set, and the index is exact; beyond that its standard error is sqrt(J (1 - J) / k), 0.005 at
J = 0.9.
"""

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from hashlib import blake2b
from heapq import nsmallest
from math import ceil
from typing import Final

GRAM_LENGTH: Final = 8
"""Characters of a gram of normalised text."""
MAX_GRAMS: Final = 4096
"""k: hashes of a sketch."""
_SIZE: Final = 8
"""Bytes of a hash."""
_NUM_COUNTS: Final = 2**20
"""Counts of hashes; those of one bucket share a count."""


def sketch_text(text: str) -> bytes:
    """Return the sketch of a normalised text: up to 4,096 hashes of 8 bytes, in ascending order.

    A text that is shorter than a gram is one gram; an empty one has none.
    """
    last = max(0, len(text) - GRAM_LENGTH)
    grams = {text[start : start + GRAM_LENGTH] for start in range(last + 1)} if text else set[str]()
    return b"".join(sorted(blake2b(gram.encode(), digest_size=_SIZE).digest() for gram in grams)[:MAX_GRAMS])


def measure_jaccard(one: bytes, other: bytes) -> float:
    """Return the share of grams of either text that are in both: 0 to 1."""
    return _compare(_list_hashes(one), _list_hashes(other))


class SketchIndex:
    """Sketches among which those of near-duplicates are found without comparing all.

    Sets that are similar share one of their first hashes, whatever the order of all hashes (prefix filter; Chaudhuri et
    al. 2006, A primitive operator for similarity joins in data cleaning). Here rare hashes come first.

    Args:
        sketches: at their positions.
        least: least Jaccard index of near-duplicates.
    """

    def __init__(self, sketches: Sequence[bytes], least: float) -> None:
        self._sketches, self._least = sketches, least
        self._counts = array("I", [0]) * _NUM_COUNTS
        for sketch in sketches:
            for one in _list_hashes(sketch):
                self._counts[_bucket(one)] += 1
        self._holders: defaultdict[bytes, list[int]] = defaultdict(list)
        for position, sketch in enumerate(sketches):
            for one in self._list_prefix(_list_hashes(sketch)):
                self._holders[one].append(position)

    def find(self, sketch: bytes) -> list[tuple[int, float]]:
        """Return position and Jaccard index of each near-duplicate, in order of positions."""
        hashes = _list_hashes(sketch)
        sharing = {position for one in self._list_prefix(hashes) for position in self._holders.get(one, ())}
        found = ((position, _compare(hashes, _list_hashes(self._sketches[position]))) for position in sharing)
        return sorted((position, index) for position, index in found if index >= self._least)

    def _list_prefix(self, hashes: list[bytes]) -> list[bytes]:
        # the smallest hashes of a larger set may be others, though nearly all grams are shared
        least = self._least**2 if len(hashes) == MAX_GRAMS else self._least
        num = len(hashes) - ceil(round(least * len(hashes), 6)) + 1 if hashes else 0
        return nsmallest(num, hashes, key=lambda one: (self._counts[_bucket(one)], one))


def _list_hashes(sketch: bytes) -> list[bytes]:
    return [sketch[start : start + _SIZE] for start in range(0, len(sketch), _SIZE)]


def _bucket(one: bytes) -> int:
    return int.from_bytes(one[-3:]) % _NUM_COUNTS


def _compare(one: list[bytes], other: list[bytes]) -> float:
    # below the largest hash of a sketch that is cut off, both are complete
    last = min((hashes[-1] for hashes in (one, other) if len(hashes) == MAX_GRAMS), default=None)
    first, second = (set(hashes if last is None else hashes[: bisect_right(hashes, last)]) for hashes in (one, other))
    num_shared = len(first & second)
    return num_shared / (len(first) + len(second) - num_shared) if num_shared else 0.0
