"""A request of another dialect in the words of chat completions, before anybody decides what becomes of it.

A gateway refuses what no engine can be asked. The tracer has seen the call already: it records as much as there is a
form for, and names the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import JsonObject
from agent_layer.translation.members import is_harmless

Pieces: TypeAlias = dict[str, msgspec.Raw]
"""A JSON object whose values are not decoded yet."""

_ENCODER: Final = msgspec.json.Encoder()
_PIECES: Final = msgspec.json.Decoder(Pieces)


def read_pieces(body: bytes) -> Pieces:
    """Cut a body into the JSON texts of its members.

    Raises: UNREADABLE: it is no JSON object.
    """
    return _PIECES.decode(body)


def encoded(value: object) -> msgspec.Raw:
    """Return a value as JSON text."""
    return value if isinstance(value, msgspec.Raw) else msgspec.Raw(_ENCODER.encode(value))


@dataclass(slots=True)
class Losses:
    """What of a request or an answer has no form in chat completions."""

    names: dict[str, None] = field(default_factory=dict[str, None])
    """Names of what is left out."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """What no engine can be asked: its name, to a sentence."""

    @property
    def num_bytes(self) -> int:
        """Length of the texts."""
        return sum(map(len, [*self.names, *self.refused, *self.refused.values()]))

    def add(self, other: "Losses") -> None:
        """Add what was lost elsewhere."""
        self.names |= other.names
        self.refused |= other.refused


class Turn(msgspec.Struct, frozen=True):
    """What a piece of a client's conversation stands for. It is read once, however often the conversation is sent."""

    messages: Sequence[msgspec.Raw]
    """JSON texts of chat messages."""
    losses: Losses

    @property
    def num_bytes(self) -> int:
        """Length of the texts."""
        return self.losses.num_bytes + sum(memoryview(message).nbytes for message in self.messages)


MAX_TURN_BYTES: Final = 64 << 20
"""What is remembered of the turns of all conversations."""


class Translation(msgspec.Struct, frozen=True, kw_only=True):
    """A request in the words of chat completions."""

    client_fields: Pieces
    """What the client sent, in its dialect."""
    system: list[JsonObject]
    """Chat messages that stand before all others."""
    messages: Sequence[msgspec.Raw]
    """JSON texts of the chat messages that the request holds."""
    fields: Mapping[str, object]
    """The other members of the chat request, as values or JSON texts; those that are None are left out."""
    losses: Losses
    not_sampling: frozenset[str]
    """Members of what the client sent that do not shape the answer."""
    shaping: frozenset[str] = frozenset()
    """Members that are left out though they would shape it."""
    continues: str | None = None
    """Id of an answer up to which the server remembers the conversation; None: all of it is here."""
    shows_logprobs: bool = False
    """The answer shows log-probabilities."""

    def read_sampling(self) -> JsonObject:
        """Return what shapes the answer besides messages and tools, in the client's words."""
        return {
            name: msgspec.json.decode(one)
            for name, one in self.client_fields.items()
            if name not in self.not_sampling and not is_harmless(name, one)
        }

    def check_askable(self) -> None:
        """Raises: BadInputError: it holds what no engine can be asked."""
        for sentence in self.losses.refused.values():
            raise BadInputError(sentence)
