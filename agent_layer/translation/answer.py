"""Answers of other dialects in the words of chat completions, as far as their readers need them."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from agent_layer.schema import Action, Usage, mend_surrogates, read_json
from agent_layer.translation.request import Losses

T = TypeVar("T")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a server answered."""

    actions: list[Action]
    """[num_choices]; empty when nothing came."""
    losses: Losses
    model: str | None = None
    usage: Usage | None = None
    failure: str | None = None
    """Why it failed, by the server's word; None: it did not."""
    is_complete: bool = True
    """Every choice names why it ended."""


def read_as(text: bytes | str, kind: type[T]) -> T:
    """Read JSON of a server as a record; what other readers refuse in it is converted by itself.

    Raises: msgspec.DecodeError: it is something else.
    """
    mended = mend_surrogates(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    try:
        return msgspec.json.decode(mended, type=kind)
    except (msgspec.DecodeError, UnicodeError):
        return msgspec.convert(read_json(mended), kind)


def read_events(events: Iterable[str], kind: type[T], unread: list[str]) -> Iterator[T]:
    """Yield the events of a stream that can be read.

    Args:
        events: JSON text of each.
        kind: record of one.
        unread: takes why others cannot be read.
    """
    for event in events:
        try:
            yield read_as(event, kind)
        except msgspec.DecodeError as error:
            unread.append(str(error))
