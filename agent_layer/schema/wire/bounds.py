"""Bounds of JSON texts from outside, checked before they are parsed.

A parser holds the interpreter's lock from the first byte of a text to the last, and its cost follows the number of
values. So a scan that counts them comes first. It works in pieces, between which other threads run.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema.json_forms import UNREADABLE

_PIECE_BYTES: Final = 1 << 18
_SMALL_BYTES: Final = 1 << 13
_ESCAPES_PER_VALUE: Final = 32
"""An escape costs a parser about a 32nd of a value."""
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_AS_LISTS: Final = bytes.maketrans(b"{}", b"[]")
_LISTS: Final = ("messages", "input", "contents", "tools")
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])


class BodyBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a body may hold at most."""

    values: int
    """Texts, numbers, lists, objects, all together."""
    depth: int
    """Lists and objects within each other."""
    messages: int
    """Items of each of a request's messages, input, contents and tools."""


def check_bounds(body: bytes, bounds: BodyBounds, subject: str) -> None:
    """Check a body that may be JSON; what is no JSON passes, for the parser to refuse.

    Raises: BadInputError: it holds more than its bounds.
    """
    if len(body) <= _SMALL_BYTES and _is_small(body, bounds):
        return
    num_values, num_escapes, brackets, is_in_text = 1, 0, list[bytes](), False
    for piece in _pieces(body):
        num_escapes += piece.count(b"\\")
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[is_in_text::2])
        is_in_text ^= len(parts) % 2 == 0
        num_values += sum(outside.count(begin) for begin in (b",", b"[", b"{"))
        if num_values > bounds.values or num_escapes > bounds.values * _ESCAPES_PER_VALUE:
            raise _too_many(subject, f"{bounds.values} values", "more", "AGENT_LAYER_MAX_BODY_VALUES")
        brackets.append(outside.translate(_AS_LISTS, _NO_BRACKETS))
    if _is_deeper(b"".join(brackets), bounds.depth):
        raise _too_many(subject, f"{bounds.depth} levels of lists and objects", "more", "AGENT_LAYER_MAX_BODY_DEPTH")
    if num_values > bounds.messages:
        _check_lists(body, bounds.messages, subject)


def _is_small(body: bytes, bounds: BodyBounds) -> bool:
    """Whether a body stays within its bounds though all that looks like a value or an escape is counted as one."""
    num_opened = body.count(b"[") + body.count(b"{")
    num_values = 1 + num_opened + body.count(b",")
    most_escapes = bounds.values * _ESCAPES_PER_VALUE
    return (
        num_opened <= bounds.depth and num_values <= min(bounds.values, bounds.messages) and len(body) <= most_escapes
    )


def _pieces(body: bytes) -> Iterator[bytes]:
    """Cut a text where no escape begins."""
    begin = 0
    while begin < len(body):
        piece = body[begin : begin + _PIECE_BYTES]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece = body[begin : begin + _PIECE_BYTES + 1]
        yield piece
        begin += len(piece)


def _is_deeper(brackets: bytes, depth: int) -> bool:
    """Take off the innermost level, as often as it may be."""
    for _ in range(depth):
        if not brackets:
            return False
        inner = brackets.replace(b"[]", b"")
        if len(inner) == len(brackets):
            return False  # they do not match: no JSON
        brackets = inner
    return bool(brackets)


def _check_lists(body: bytes, most: int, subject: str) -> None:
    try:
        members = _MEMBERS.decode(body)
        lengths = {
            name: len(_ITEMS.decode(members[name])) for name in _LISTS if bytes(members.get(name, b""))[:1] == b"["
        }
    except UNREADABLE:
        return
    for name, length in lengths.items():
        if length > most:
            raise _too_many(subject, f"{most} {name}", str(length), "AGENT_LAYER_MAX_MESSAGES")


def _too_many(subject: str, expected: str, found: str, setting: str) -> BadInputError:
    return BadInputError(f"{subject}: expected at most {expected}, found {found}; send less, or raise {setting}")
