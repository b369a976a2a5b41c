"""Base of all records: frozen structs, packed token arrays, JSON values."""

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self, TypeAlias

import msgspec

SCHEMA_VERSION = 1
"""Raised when a field changes its meaning; adding a field does not raise it."""


def current_version() -> int:
    """Return the schema version. A factory, because plain defaults are left out of the stored form."""
    return SCHEMA_VERSION


JsonObject: TypeAlias = dict[str, object]
_LAST_SECOND = 253_402_300_799.0
"""Last second of the year 9999."""


def known_time(at: float) -> float:
    """Return the time, or the nearest that a calendar has: one broken clock must not spoil what all others ask."""
    return min(max(at, 0.0), _LAST_SECOND) if at == at else 0.0  # noqa: PLR0124  # what is no number differs from itself


def sortable_time(at: float) -> str:
    """Return a time as text that sorts, exact to the microsecond."""
    return f"{known_time(at):017.6f}"


if TYPE_CHECKING:
    _Int32s = array[int]
    _Float32s = array[float]
else:  # array takes no type arguments at run time before Python 3.12
    _Int32s = _Float32s = array


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parent of all records. ``None`` means "not known"; it never stands for zero or failed."""

    unknown: dict[str, object] = {}
    """Fields that a newer writer knew and this reader does not; kept, so that a round trip loses nothing."""


class TokenIds(_Int32s):
    """Token ids, int32, one per token. Stored as little-endian bytes."""

    def __new__(cls, values: Iterable[int] | bytes = ()) -> Self:
        """Pack ids (or the bytes of packed ids)."""
        return super().__new__(cls, "i", values)  # pyright: ignore[reportReturnType]  # array.__new__ returns the class it gets

    def __reduce__(self) -> tuple[type[Self], tuple[bytes]]:
        """Pickle as bytes: the parent would pass its type code to ``__new__``."""
        return type(self), (self.tobytes(),)


class Logprobs(_Float32s):
    """Natural-log probabilities, float32, one per sampled token. Stored as little-endian bytes."""

    def __new__(cls, values: Iterable[float] | bytes = ()) -> Self:
        """Pack log-probabilities (or the bytes of packed ones)."""
        return super().__new__(cls, "f", values)  # pyright: ignore[reportReturnType]  # array.__new__ returns the class it gets

    def __reduce__(self) -> tuple[type[Self], tuple[bytes]]:
        """Pickle as bytes: the parent would pass its type code to ``__new__``."""
        return type(self), (self.tobytes(),)


class Advantages(_Float32s):
    """Advantages, float32, one per trained token. Stored as little-endian bytes."""

    def __new__(cls, values: Iterable[float] | bytes = ()) -> Self:
        """Pack advantages (or the bytes of packed ones)."""
        return super().__new__(cls, "f", values)  # pyright: ignore[reportReturnType]  # array.__new__ returns the class it gets

    def __reduce__(self) -> tuple[type[Self], tuple[bytes]]:
        """Pickle as bytes: the parent would pass its type code to ``__new__``."""
        return type(self), (self.tobytes(),)
