"""What is remembered of OpenAI's responses: their items by id, and their conversations for ``previous_response_id``."""

from collections.abc import Sequence
from typing import Final

import msgspec

from agent_layer.errors import NotFoundError
from agent_layer.gateway.dialects.base import Exchange, LRUCache
from agent_layer.gateway.dialects.stream import Block, join_blocks
from agent_layer.schema import JsonObject
from agent_layer.translation import encoded


def keep_answer(exchange: Exchange, items: list[JsonObject], blocks: list[Block] | None) -> None:
    """Remember the items, and what a response adds to the one that it continues: the input, and the answer.

    Args:
        exchange: the call.
        items: shown of the answer.
        blocks: the same; None: the answer is not complete.
    """
    kept_fields = _RESPONSES_BODY.decode(
        _ENCODER.encode({name: exchange.request.client_fields.get(name, _NULL) for name in _KEPT})
    )
    if kept_fields.store is False:
        return
    for item in items:
        exchange.memory.keep(str(item["id"]), msgspec.json.encode(item))
    if blocks is None:
        return
    before = kept_fields.previous_response_id
    num_before = len(read_conversation(exchange.memory, before)) if before else 0
    begin = num_before + bool(kept_fields.instructions)
    names = exchange.memory.keep_messages(exchange.request, begin, encoded(join_blocks(blocks)))
    exchange.memory.keep(f"resp_{exchange.call_id}", msgspec.json.encode(_StoredResponse(before, names)))


def resolve_item(memory: LRUCache, item: JsonObject) -> JsonObject:
    """Return the item that an ``item_reference`` names; any other stays.

    Raises: NotFoundError: it is not remembered.
    """
    match item:
        case {"type": "item_reference", "id": str(item_id)}:
            if (found := memory.find(item_id)) is None:
                raise NotFoundError(
                    f"item {item_id}: expected it in an answer of this rollout, but it is not remembered (any"
                    " more); send the item itself instead of an item_reference, as clients do with store = false"
                )
            return _ITEM.decode(found)
        case _:
            return item


def read_conversation(memory: LRUCache, response_id: str) -> Sequence[msgspec.Raw]:
    """Return all messages up to a response's answer, this included, without the instructions.

    Raises: NotFoundError: it is not remembered.
    """
    turns: list[list[str]] = []
    name: str | None = response_id
    while name is not None and (found := memory.find(name)) is not None:
        stored = _STORED_RESPONSE.decode(found)
        turns.append(stored.messages)
        name = stored.before
    messages = memory.find_messages(name for turn in reversed(turns) for name in turn)
    if name is not None or messages is None:
        raise NotFoundError(
            f"response {response_id}: expected it in this rollout, but it is not remembered (any more); send the"
            " conversation as input instead of previous_response_id"
        )
    return messages


class _StoredResponse(msgspec.Struct, array_like=True):
    """What a response added to its conversation."""

    before: str | None
    """The response that it continues."""
    messages: list[str]
    """Their names in the memory."""


class _ResponsesBody(msgspec.Struct):
    store: bool | None = None
    previous_response_id: str | None = None
    instructions: str | None = None


_RESPONSES_BODY = msgspec.json.Decoder(_ResponsesBody)
_KEPT: Final = _ResponsesBody.__struct_fields__
_ENCODER: Final = msgspec.json.Encoder()
_ITEM: Final = msgspec.json.Decoder(JsonObject)
_STORED_RESPONSE = msgspec.json.Decoder(_StoredResponse)
_NULL: Final = msgspec.Raw(b"null")
