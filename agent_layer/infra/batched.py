"""This file holds how a long row of things is taken a page at a time."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def pages_of(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Give the items in lists of this size; the last one may be shorter."""
    left = iter(items)
    while page := list(islice(left, size)):
        yield page
