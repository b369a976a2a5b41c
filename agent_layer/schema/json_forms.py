r"""JSON forms of what has none: lone surrogates, integers beyond 64 bits, scalars of numeric libraries, other objects.

A lone surrogate is half of a character. Programs make them where they cut a text by UTF-16 units, and JSON can spell
them (``"\ud83d"``), but UTF-8 cannot, and neither tokenizers nor stores read them.
"""

import re
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from typing import Final, cast

import msgspec

_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(u[dD][89a-fA-F][\da-fA-F]{2})|.)", re.DOTALL
)
"""An escape, or the two of a pair; the group is a surrogate without its other half."""
_MAX_DEPTH: Final = 200
_MAX_INTEGER: Final = 1 << 63


def mend_surrogates(text: bytes) -> bytes:
    """Return JSON text with U+FFFD, the replacement character, in place of each escaped lone surrogate."""
    if _SURROGATE.search(text) is None:
        return text
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], text)


def mend_text(text: str) -> str:
    r"""Return text with each lone surrogate spelled out as its escape, such as ``\ud83d``, so that UTF-8 has it."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def to_json_form(value: object, stand_in: Callable[[object], object]) -> object:
    """Return a copy of any value in which everything has a JSON form that records can store.

    Only what has none is changed, wherever it is: texts with lone surrogates have them spelled out, integers beyond 64
    bits become texts, scalars and arrays of NumPy and its like become numbers and lists.

    Args:
        value: may contain itself; what is nested more than 200 deep is stood in for.
        stand_in: returns the form of an object of any other kind, which may itself need one. Must not raise.
    """
    return _convert(value, stand_in, _MAX_DEPTH)


def _convert(value: object, stand_in: Callable[[object], object], depth: int) -> object:
    form: object = None
    match value:
        case None | bool():
            form = value
        case float():
            form = float(value)
        case str():
            form = mend_text(value)
        case int():
            form = int(value) if -_MAX_INTEGER <= value < _MAX_INTEGER * 2 else str(int(value))
        case _ if depth == 0:
            shown = stand_in(value)
            form = mend_text(shown) if isinstance(shown, str) else None
        case Mapping():
            fields = cast("Mapping[object, object]", value)
            form = {mend_text(str(key)): _convert(one, stand_in, depth - 1) for key, one in [*fields.items()]}
        case list() | tuple() | set() | frozenset():
            items = cast("Sequence[object] | AbstractSet[object]", value)
            form = [_convert(one, stand_in, depth - 1) for one in [*items]]
        case _:
            form = _convert(_open_up(value, stand_in), stand_in, depth - 1)
    return form


def _open_up(value: object, stand_in: Callable[[object], object]) -> object:
    """Return the parts of an object: numbers of NumPy and its like, fields of records, else what stands in for it."""

    def convert(one: object) -> object:
        to_list = getattr(one, "tolist", None)
        return to_list() if callable(to_list) and hasattr(one, "dtype") else stand_in(one)

    try:
        return msgspec.to_builtins(value, enc_hook=convert)
    except Exception:  # noqa: BLE001 - code of the object's, which may raise anything
        return stand_in(value)
