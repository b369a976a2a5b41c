"""Batches of a fixed size out of any iterable."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of ``size``; the last one may be shorter. As ``itertools.batched`` of Python 3.12."""
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch
