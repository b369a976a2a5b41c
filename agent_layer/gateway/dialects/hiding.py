"""This file holds how clients are not shown what they did not ask for: values that engines add for the record.

In place of such a value stands null; every other byte stays as it was. Names are searched for with their quotes, which
inside a JSON text would be escaped, so no text that a model said is taken for one.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

__all__ = ["hide_in_events", "hide_values"]

_IDS: Final = re.compile(rb'"token_ids": ?\[[\d, ]*+\]')
_PROMPT_IDS: Final = re.compile(rb'"prompt_token_ids": ?\[[\d, ]*+\]')
_TEXT: Final = rb'"(?:[^"\\]++|\\.)*+"'
_PLAIN: Final = rb'[^"{}\[\]]++|' + _TEXT
_ENTRY: Final = rb"\{(?:" + _PLAIN + rb"|\[[^\"\[\]]*+\])*+\}"
_ONE_LOGPROB: Final = re.compile(
    rb'"logprobs": ?\{"content": ?\[\{"token": ?' + _TEXT + rb', ?"logprob": ?[-\d.e]++, ?"bytes": ?\[[\d, ]*+\],'
    rb' ?"top_logprobs": ?\[\]\}\]\}'
)
"""What vLLM sends with each token, matched in a third of the time."""
_LOGPROBS: Final = re.compile(rb'"logprobs": ?\{(?:' + _PLAIN + rb"|\[(?:" + _ENTRY + rb"|[, ])*+\])*+\}")
_SOME_LOGPROBS: Final = re.compile(rb'"logprobs": ?\{')


def hide_values(body: bytes, values: Iterable[tuple[bytes, msgspec.Raw]]) -> bytes:
    """Put null in place of members' values.

    Args:
        body: JSON text.
        values: (name with quotes, value as it stands there); those of one name in their order.
    """
    places = sorted(_places_of(body, values))
    if not places:
        return body
    ends = [0, *[end for _, end in places]]
    kept = [body[end:begin] for end, (begin, _) in zip(ends, places, strict=False)]
    return b"null".join([*kept, body[ends[-1] :]])


def hide_in_events(lines: bytes, *, ids: bool, logprobs: bool) -> bytes:
    """Put null in place of token ids or log-probabilities in whole lines of an event stream."""
    if ids:
        lines = _IDS.sub(b'"token_ids":null', lines)
        if b'"prompt_token_ids"' in lines:
            lines = _PROMPT_IDS.sub(b'"prompt_token_ids":null', lines)
    if not logprobs:
        return lines
    lines = _ONE_LOGPROB.sub(b'"logprobs":null', lines)
    return _LOGPROBS.sub(b'"logprobs":null', lines) if _SOME_LOGPROBS.search(lines) else lines


def _places_of(body: bytes, values: Iterable[tuple[bytes, msgspec.Raw]]) -> Iterator[tuple[int, int]]:
    """(begin, end) of each value."""
    read: dict[bytes, int] = {}
    for name, value in values:
        if (text := bytes(value)) in (b"", b"null"):
            continue
        begin = _value_at(body, name, text, read.get(name, 0))
        if begin >= 0:
            read[name] = begin + len(text)
            yield begin, read[name]


def _value_at(body: bytes, name: bytes, text: bytes, start: int) -> int:
    """Where the value of this name begins; -1: nowhere."""
    at = body.find(name, start)
    while at >= 0:
        begin = at + len(name) + 1
        begin += body.startswith(b" ", begin)
        if body.startswith(text, begin):
            return begin
        at = body.find(name, begin)
    return -1
