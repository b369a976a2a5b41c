"""This file holds an assistant message as a row of blocks: what it thought, what it said, which tools it calls.

Responses and Anthropic messages show answers in such blocks, streamed ones block after block.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from agent_layer.gateway.dialects.turns import assistant_message, tool_call
from agent_layer.schema.record import JsonObject
from agent_layer.schema.untrusted import object_of, objects_of

__all__ = ["Block", "BlockWalk", "Events", "Tellers", "blocks_of", "message_of"]

Kind: TypeAlias = Literal["reasoning", "text", "call"]
Events: TypeAlias = list[JsonObject]
"""Each has its name in ``type``."""


@dataclass(slots=True)
class Block:
    """A part of an answer."""

    kind: Kind
    index: int
    """Place in the row."""
    call_id: str = ""
    name: str = ""
    """Of the tool."""
    texts: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """Thought, said, or the arguments of the call."""
        return "".join(self.texts)


class Tellers(Protocol):
    """How a dialect tells of a block that comes."""

    def begin(self, block: Block) -> Events:
        """It begins, empty."""
        ...

    def grow(self, block: Block, text: str) -> Events:
        """This text was added."""
        ...

    def end(self, block: Block) -> Events:
        """It is whole."""
        ...


def blocks_of(message: JsonObject) -> list[Block]:
    """Give the blocks of a message; an empty answer is an empty text."""
    found = [Block(kind, 0, call_id, name, [text]) for kind, call_id, name, text, _ in _additions(message)]
    blocks = found or [Block("text", 0)]
    for index, block in enumerate(blocks):
        block.index = index
    return blocks


def message_of(blocks: list[Block]) -> JsonObject:
    """Give the message that these blocks are, as it comes back when a client sends them."""
    calls = [tool_call(block.call_id, block.name, block.text) for block in blocks if block.kind == "call"]
    texts = [block.text for block in blocks if block.kind == "text"]
    return assistant_message(texts, [block.text for block in blocks if block.kind == "reasoning"], calls)


@dataclass(slots=True)
class BlockWalk:
    """Tells of the blocks of a streamed message, one after the other."""

    tellers: Tellers
    _open: Block | None = None
    _number: object = None
    """Of the tool call that is open."""
    _num_blocks: int = 0

    def take(self, delta: JsonObject) -> Iterator[JsonObject]:
        """Tell what a delta adds."""
        for kind, call_id, name, text, number in _additions(delta):
            block = self._open
            if block is None or block.kind != kind or (kind == "call" and number != self._number):
                yield from self.close()
                block = Block(kind, self._num_blocks, call_id, name)
                yield from self._begin(block, number)
            if text:
                block.texts.append(text)
                yield from self.tellers.grow(block, text)

    def finish(self) -> Iterator[JsonObject]:
        """Tell the end; an empty answer is an empty text."""
        if not self._num_blocks:
            yield from self._begin(Block("text", 0), None)
        yield from self.close()

    def close(self) -> Iterator[JsonObject]:
        """Tell that the open block is whole."""
        if self._open is not None:
            yield from self.tellers.end(self._open)
        self._open = None

    def _begin(self, block: Block, number: object) -> Events:
        self._open, self._number = block, number
        self._num_blocks += 1
        return self.tellers.begin(block)


_Addition: TypeAlias = tuple[Kind, str, str, str, object]
"""(kind, call id, tool, text, number of the call)."""


def _additions(message: JsonObject) -> Iterator[_Addition]:
    if thought := message.get("reasoning") or message.get("reasoning_content"):
        yield "reasoning", "", "", str(thought), None
    for name in ("content", "refusal"):
        if said := message.get(name):
            yield "text", "", "", str(said), None
    for place, call in enumerate(objects_of(message.get("tool_calls"))):
        function = object_of(call.get("function"))
        name, arguments = str(function.get("name") or ""), str(function.get("arguments") or "")
        yield "call", str(call.get("id") or ""), name, arguments, call.get("index", place)
