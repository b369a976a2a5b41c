"""Bounds of protobuf bodies, checked before they are parsed.

A parser holds the interpreter's lock from the first byte to the last, and an empty message of two bytes becomes an
object of a hundred. So a walk along the wire format counts the messages first. It costs as much as reading them, and
most bodies are spared it: they have too few bytes with which a message could begin.
"""

from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from agent_layer.errors import BadInputError

_Layout: TypeAlias = Mapping[int, Descriptor | None]
"""Tag of each field that holds messages or a list of texts → the kind of its messages; None: texts."""

_PIECE_BYTES = 1 << 18
_LENGTH = 2
"""Wire type of a field that begins with its length."""
_FIXED_BYTES = {1: 8, 5: 4}
"""Length of the wire types that have one, but for varints."""
_MAX_VARINT_LENGTH = 10
_MORE = 0x80
"""Bit of each byte of a varint but the last."""


def check_messages(body: bytes, kind: Descriptor, most: int, subject: str) -> None:
    """Check a body of this kind; what is no protobuf passes, for the parser to refuse.

    Raises: BadInputError: it holds more messages, one inside the other counted too.
    """
    if _count_beginnings(body, _first_bytes(kind)) > most and _holds_more(body, kind, most):
        raise BadInputError(
            f"{subject}: expected at most {most} messages inside, found more; send fewer spans at once, or raise"
            " AGENT_LAYER_MAX_BODY_VALUES"
        )


def _count_beginnings(body: bytes, beginnings: bytes) -> int:
    pieces = (body[begin : begin + _PIECE_BYTES] for begin in range(0, len(body), _PIECE_BYTES))
    return sum(len(piece) - len(piece.translate(None, beginnings)) for piece in pieces)


def _holds_more(body: bytes, kind: Descriptor, most: int) -> bool:
    """Whether a body holds more messages. Where it is broken, the walk finds at least those that a parser finds."""
    num_messages, unread = 0, [(0, len(body), kind)]
    while unread:
        at, end, inside = unread.pop()
        layout = _find_layout(inside)
        while at < end:
            tag, at = _read_varint(body, at)
            if tag & 7 != _LENGTH:
                # a group is read as if its content stood without it
                at = at + _FIXED_BYTES.get(tag & 7, 0) if tag & 7 else _read_varint(body, at)[1]
                continue
            size, at = _read_varint(body, at)
            if tag in layout:
                num_messages += 1
                if num_messages > most:
                    return True
                if (inner := layout[tag]) is not None and size:
                    unread.append((at, min(end, at + size), inner))
            at += size
    return False


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    """Return (value, where it ends)."""
    if at < len(body) and body[at] < _MORE:
        return body[at], at + 1
    value = 0
    for index, byte in enumerate(body[at : at + _MAX_VARINT_LENGTH]):
        value |= (byte & ~_MORE) << (7 * index)
        if byte < _MORE:
            return value, at + index + 1
    return value, at + _MAX_VARINT_LENGTH


@cache
def _find_layout(kind: Descriptor) -> _Layout:
    return {
        field.number << 3 | _LENGTH: field.message_type
        for field in kind.fields
        if field.message_type or (field.type in _TEXTS and field.is_repeated)
    }


_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


@cache
def _first_bytes(kind: Descriptor) -> bytes:
    """Bytes with which a message inside can begin; a tag may be written longer than it need be."""
    seen, unread = {kind}, [kind]
    while unread:
        found = {inner for inner in _find_layout(unread.pop()).values() if inner} - seen
        seen |= found
        unread += found
    tags = {tag & 0x7F for inside in seen for tag in _find_layout(inside)}
    return bytes(sorted({byte | more for byte in tags for more in (0, _MORE)}))
