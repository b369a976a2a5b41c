"""What is remembered of OpenAI's responses: their items by id, and their conversations for ``previous_response_id``.

Stored responses can be read and deleted. What a client does not want stored is remembered for its socket alone: there
it may be continued, as OpenAI's servers do it, and nowhere else is it found.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from agent_layer.errors import NotFoundError
from agent_layer.gateway.dialects.base import Exchange, LRUCache
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.gateway.dialects.stream import Block, join_blocks
from agent_layer.schema import JsonObject
from agent_layer.translation import encoded


class ShownResponse(msgspec.Struct, array_like=True):
    """A stored response as it is read again."""

    body: dict[str, msgspec.Raw]
    """Short members."""
    long: dict[str, str]
    """Names, in the memory, of members that each response of a conversation repeats."""
    items: list[str]
    """Ids of its items."""
    input: list[str]
    """Names of what its client sent."""


def keep_answer(
    exchange: Exchange, response: JsonObject, items: list[JsonObject], blocks: list[Block] | None, socket: str | None
) -> None:
    """Remember a response and its items, and what it adds to the one that it continues: the input, and the answer.

    Args:
        exchange: the call.
        response: without its items.
        items: shown of the answer.
        blocks: the same; empty: the model was not asked; None: the answer is not complete.
        socket: the socket that may continue it though its client does not want it stored; None: none may.
    """
    kept_fields = _RESPONSES_BODY.decode(
        _ENCODER.encode({name: exchange.request.client_fields.get(name, _NULL) for name in _KEPT})
    )
    memory, name, is_stored = exchange.memory, f"resp_{exchange.call_id}", kept_fields.store is not False
    before, num_before = kept_fields.previous_response_id, 0
    if before:
        try:
            num_before = len(read_conversation(memory, before, socket))
        except RefusedError:  # it was evicted while the model answered: the answer stands, but is not continued
            blocks = None
    if is_stored:
        for item in items:
            memory.keep(str(item["id"]), _ENCODER.encode(item))
        memory.keep(f"{name}{_SHOWN}", _ENCODER.encode(_show(exchange, response, items)))
    if blocks is None or not (is_stored or socket):
        return
    answer = encoded(join_blocks(blocks)) if blocks else None
    names = memory.keep_turn(exchange.request, num_before + bool(kept_fields.instructions), answer)
    text = _ENCODER.encode(_StoredResponse(before, names))
    memory.keep(_name_conversation(name, None if is_stored else socket), text)


def _show(exchange: Exchange, response: JsonObject, items: list[JsonObject]) -> ShownResponse:
    texts = {name: msgspec.Raw(_ENCODER.encode(value)) for name, value in response.items()}
    short = {name: text for name, text in texts.items() if memoryview(text).nbytes <= _MAX_SHORT_BYTES}
    long = [name for name in texts if name not in short]
    kept = exchange.memory.keep_messages(bytes(texts[name]) for name in long)
    sent = msgspec.json.decode(exchange.request.client_fields.get("input", b"[]"), type=list[msgspec.Raw] | str)
    listed = [_ENCODER.encode({"role": "user", "content": sent})] if isinstance(sent, str) else map(bytes, sent)
    return ShownResponse(
        body=short,
        long=dict(zip(long, kept, strict=True)),
        items=[str(item["id"]) for item in items],
        input=exchange.memory.keep_messages(listed),
    )


def read_response(memory: LRUCache, response_id: str) -> JsonObject:
    """Return a stored response as it was answered. Raises: NotFoundError: it is not remembered."""
    shown = _find_shown(memory, response_id)
    long = memory.find_messages(shown.long.values())
    items = memory.find_messages(shown.items)
    if long is None or items is None:
        raise _not_found(response_id)
    return {**shown.body, **dict(zip(shown.long, long, strict=True)), "output": items}


def read_input_items(memory: LRUCache, response_id: str) -> list[JsonObject]:
    """Return what the model read for a stored response: items of those that it continues, and what its client sent.

    Raises: NotFoundError: it is not remembered. One that it continues and that is not, is left out.
    """
    turns: list[list[JsonObject]] = []
    shown = _find_shown(memory, response_id)
    name: str | None = response_id
    while shown is not None:
        if (found := memory.find_messages(shown.input)) is None:
            raise _not_found(response_id)
        sent = [_spell_out(_ITEM.decode(one)) for one in found]
        turns.append([{"id": f"in_{name}_{at}", **item} for at, item in enumerate(sent)])
        name = msgspec.json.decode(shown.body.get("previous_response_id", _NULL), type=str | None)
        text = memory.find(f"{name}{_SHOWN}")
        shown = None if text is None else _SHOWN_RESPONSE.decode(text)
        if shown is not None:
            turns.append([_ITEM.decode(one) for one in memory.find_messages(shown.items) or ()])
    return [item for turn in reversed(turns) for item in turn]


def _spell_out(item: JsonObject) -> JsonObject:
    """Return a message as OpenAI's servers list it, however short its client was."""
    match item:
        case {"role": role, "content": str(text)}:
            kind = "output_text" if role == "assistant" else "input_text"
            return {"type": "message", **item, "content": [{"type": kind, "text": text}]}
        case {"role": _}:
            return {"type": "message", **item}
        case _:
            return item


def delete_response(memory: LRUCache, response_id: str) -> None:
    """Forget a response; those that continue it go on. Raises: NotFoundError: it is not remembered."""
    _find_shown(memory, response_id)
    memory.forget(f"{response_id}{_SHOWN}")
    conversation = _name_conversation(response_id)
    if (stored := memory.find(conversation)) is not None:
        deleted = msgspec.structs.replace(_STORED_RESPONSE.decode(stored), is_deleted=True)
        memory.keep(conversation, _ENCODER.encode(deleted))


def _name_conversation(response_id: str, socket: str | None = None) -> str:
    """Name what a response added to its conversation. No other name in the memory is like it."""
    return f"{response_id}/conversation" if socket is None else f"{socket}/{response_id}/conversation"


def _find_shown(memory: LRUCache, response_id: str) -> ShownResponse:
    if (found := memory.find(f"{response_id}{_SHOWN}")) is None:
        raise _not_found(response_id)
    return _SHOWN_RESPONSE.decode(found)


def _not_found(response_id: str) -> NotFoundError:
    return NotFoundError(
        f"response {response_id}: expected one that this rollout was answered and that is stored, but it is not"
        " remembered (any more); keep what POST /v1/responses answers"
    )


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


def read_conversation(memory: LRUCache, response_id: str, socket: str | None = None) -> Sequence[msgspec.Raw]:
    """Return all messages up to a response's answer, this included, without the instructions.

    Args:
        memory: of the rollout.
        response_id: names the response.
        socket: see ``keep_answer``.

    Raises: RefusedError: it is not remembered. Clients know the code, and send the whole conversation.
    """
    turns: list[list[str]] = []
    name: str | None = response_id
    while name is not None and (found := _find_conversation(memory, name, socket)) is not None:
        stored = _STORED_RESPONSE.decode(found)
        if stored.is_deleted and name == response_id:
            break
        turns.append(stored.messages)
        name = stored.before
    messages = memory.find_messages(name for turn in reversed(turns) for name in turn)
    if name is not None or messages is None:
        raise RefusedError(
            404 if socket is None else 400,
            "previous_response_not_found",
            f"response {response_id}: expected it in this rollout, but it is not remembered (any more); send the"
            " conversation as input instead of previous_response_id",
        )
    return messages


def _find_conversation(memory: LRUCache, response_id: str, socket: str | None) -> bytes | None:
    stored = memory.find(_name_conversation(response_id))
    return stored if stored is not None or socket is None else memory.find(_name_conversation(response_id, socket))


class _StoredResponse(msgspec.Struct, array_like=True):
    """What a response added to its conversation."""

    before: str | None
    """The response that it continues."""
    messages: list[str]
    """Their names in the memory."""
    is_deleted: bool = False
    """Whether its client deleted it: then only what continued it before finds it."""


class _ResponsesBody(msgspec.Struct):
    store: bool | None = None
    previous_response_id: str | None = None
    instructions: str | None = None


_RESPONSES_BODY = msgspec.json.Decoder(_ResponsesBody)
_KEPT: Final = _ResponsesBody.__struct_fields__
_SHOWN: Final = "/shown"
_MAX_SHORT_BYTES: Final = 256
_ENCODER: Final = msgspec.json.Encoder()
_ITEM: Final = msgspec.json.Decoder(JsonObject)
_STORED_RESPONSE = msgspec.json.Decoder(_StoredResponse)
_SHOWN_RESPONSE: Final = msgspec.json.Decoder(ShownResponse)
_NULL: Final = msgspec.Raw(b"null")
