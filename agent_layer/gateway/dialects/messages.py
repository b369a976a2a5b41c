"""Anthropic's messages API, ``/v1/messages``, translated from and to chat completions."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

import msgspec

from agent_layer.gateway.dialects.base import Exchange, LRUCache
from agent_layer.gateway.dialects.chat import ChatRequest, asks_something
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.endings import find_failure
from agent_layer.gateway.dialects.refusals import RefusedError, anthropic_error
from agent_layer.gateway.dialects.stream import Block, Events, TranslatedStream, join_blocks, split_blocks
from agent_layer.gateway.dialects.turns import SurrogateMender, count_usage, show_sampled, translated
from agent_layer.schema import JsonObject, content_hash, mend_surrogates
from agent_layer.translation import Thread, encoded, find_finish, seal_reasoning, translate_messages


class ThreadTurns(msgspec.Struct, frozen=True):
    """A thread up to and with an answer."""

    messages: list[msgspec.Raw] = []
    """Chat messages, the system's first."""
    tools: msgspec.Raw | None = None
    """Tools as chat completions name them."""


ReadThread: TypeAlias = Callable[[str], ThreadTurns]
"""Message id → the thread that ends with it."""


def read_messages(body: bytes, read_thread: ReadThread) -> ChatRequest:
    """Read a client's body.

    Args:
        body: JSON text.
        read_thread: finds the thread that the request continues.

    Raises:
        BadInputError: it is no such request, or has what a chat completion has no place for.
        RefusedError: it continues a thread that is not remembered, or changes what a thread keeps.
    """
    request = translate_messages(body)
    if request.continues is None:
        return translated(request)
    if request.system or asks_something(request.client_fields.get("tools")):
        raise RefusedError(
            400,
            "thread_fingerprint_mismatch",
            "messages request: expected a continued thread to keep system and tools of its beginning, found them sent"
            " again; leave them out, or send the whole conversation with thread type 'create'",
        )
    before = read_thread(request.continues)
    return translated(request, before.messages, tools=before.tools)


class Messages:
    """Anthropic's dialect. Threads are remembered."""

    def read(self, body: bytes, memory: LRUCache) -> ChatRequest:
        """Read a client's body."""
        return read_messages(body, lambda message_id: _read_thread(memory, message_id))

    def write(self, answer: ChatAnswer, exchange: Exchange) -> bytes:
        """Return the message."""
        return msgspec.json.encode(_MessageWriter(exchange).whole(answer))

    def stream(self, exchange: Exchange) -> TranslatedStream:
        """Begin a streamed message."""
        return TranslatedStream(_MessageWriter(exchange), exchange.num_choices)


def _keep_thread(exchange: Exchange, answer: ChatAnswer) -> None:
    """Remember what an answer adds to its thread, if it is of one: what was asked, and the answer."""
    thread = _THREAD.decode(exchange.request.client_fields.get("thread", _NULL))
    if thread is None or not answer.actions or find_finish(answer.actions[0].finish_reason).status != "ok":
        return
    before = thread.previous_message_id if thread.type == "continue" else None
    num_before = len(_read_thread(exchange.memory, before).messages) if before else 0
    message_json = encoded(join_blocks(split_blocks(answer.actions[0].message or {})))
    tools = None if before else exchange.request.tools  # a thread keeps those of its beginning
    names = exchange.memory.keep_turn(exchange.request, num_before, message_json)
    turn = _Turn(before, names, tools or _NULL)
    exchange.memory.keep(f"thread {_make_message_id(exchange)}", msgspec.json.encode(turn))


def _read_thread(memory: LRUCache, message_id: str) -> ThreadTurns:
    """Return the thread that ends with this answer.

    Raises: RefusedError: it is not remembered; Anthropic's SDKs then send the whole conversation again.
    """
    turns: list[_Turn] = []
    name: str | None = message_id
    while name is not None and (found := memory.find(f"thread {name}")) is not None:
        turns.append(_TURN.decode(found))
        name = turns[-1].before
    messages = memory.find_messages(name for turn in reversed(turns) for name in turn.messages)
    if name is not None or messages is None:
        raise RefusedError(
            404,
            "thread_not_found",
            f"message {message_id}: expected it in a thread of this rollout, but it is not remembered (any more); send"
            " the whole conversation with thread type 'create'",
        )
    return ThreadTurns(messages, None if turns[-1].tools == _NULL else turns[-1].tools)


class _Turn(msgspec.Struct, array_like=True):
    """What an answer added to its thread."""

    before: str | None
    """The answer that it continues."""
    messages: list[str]
    """Their names in the memory."""
    tools: msgspec.Raw
    """Tools of the thread's beginning; null: none."""


class _Thinking(msgspec.Struct):
    display: object = None


_DISPLAY: Final = msgspec.json.Decoder(_Thinking | None)
_TURN: Final = msgspec.json.Decoder(_Turn)
_THREAD: Final = msgspec.json.Decoder(Thread | None)
_NULL: Final = msgspec.Raw(b"null")


def _make_message_id(exchange: Exchange) -> str:
    return f"msg_{exchange.call_id}"


@dataclass(slots=True)
class _MessageWriter:
    exchange: Exchange
    menders: dict[int, SurrogateMender] = field(default_factory=dict[int, SurrogateMender])
    """Menders of streamed inputs, by block: SDKs break off at a lone surrogate."""

    def whole(self, answer: ChatAnswer) -> JsonObject:
        """Return the message.

        Raises: RefusedError: the engine says that its answer failed.
        """
        if (error := find_failure(answer)) is not None:
            raise RefusedError(502, "engine_failed", error)
        _keep_thread(self.exchange, answer)
        message = answer.actions[0].message or {}
        content = [self._show(block) for block in split_blocks(message)]
        usage = _usage(answer)
        return {
            **self._empty(),
            "content": content,
            **_ending(answer),
            "usage": usage,
            **show_sampled(answer, self.exchange.request),
        }

    def start(self, num_prompt_tokens: int | None) -> Events:
        usage = {"input_tokens": num_prompt_tokens or 0, "output_tokens": 0}
        return [{"type": "message_start", "message": {**self._empty(), "usage": usage}}]

    def begin(self, block: Block) -> Events:
        return [{"type": "content_block_start", "index": block.index, "content_block": _shown(block, "")}]

    def grow(self, block: Block, text: str) -> Events:
        kind, name = _DELTAS[block.kind]
        if block.kind == "call":
            text = self.menders.setdefault(block.index, SurrogateMender()).feed(text)
        if not text or (block.kind == "reasoning" and self._omits_thoughts):
            return []
        return [_delta(block, {"type": kind, name: text})]

    def end(self, block: Block) -> Events:
        signature: JsonObject = {"type": "signature_delta", "signature": self._sign(block)}
        signed = [_delta(block, signature)] if block.kind == "reasoning" else []
        if rest := self.menders.pop(block.index, SurrogateMender()).finish():
            signed.append(_delta(block, {"type": "input_json_delta", "partial_json": rest}))
        return [*signed, {"type": "content_block_stop", "index": block.index}]

    def finish(self, answer: ChatAnswer, blocks: list[Block]) -> Events:  # noqa: ARG002  # they are sent already
        _keep_thread(self.exchange, answer)
        event = {"delta": _ending(answer), "usage": _usage(answer), **show_sampled(answer, self.exchange.request)}
        return [{"type": "message_delta", **event}, {"type": "message_stop"}]

    def fail(self, code: str, message: str) -> Events:
        return [anthropic_error(500, code, message)]

    @property
    def _omits_thoughts(self) -> bool:
        """Whether the client keeps signatures instead of thoughts."""
        thinking = _DISPLAY.decode(self.exchange.request.client_fields.get("thinking", _NULL))
        return thinking is not None and thinking.display == "omitted"

    def _sign(self, block: Block) -> str:
        return seal_reasoning(block.text) if self._omits_thoughts else content_hash(block.text.encode())

    def _show(self, block: Block) -> JsonObject:
        if block.kind != "reasoning":
            return _shown(block, block.text)
        return _shown(block, "" if self._omits_thoughts else block.text) | {"signature": self._sign(block)}

    def _empty(self) -> JsonObject:
        return {
            "id": _make_message_id(self.exchange),
            "type": "message",
            "role": "assistant",
            "model": self.exchange.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }


_DELTAS: Final = {
    "reasoning": ("thinking_delta", "thinking"),
    "text": ("text_delta", "text"),
    "call": ("input_json_delta", "partial_json"),
}


def _delta(block: Block, delta: JsonObject) -> JsonObject:
    return {"type": "content_block_delta", "index": block.index, "delta": delta}


def _shown(block: Block, text: str) -> JsonObject:
    match block.kind:
        case "reasoning":
            return {"type": "thinking", "thinking": text, "signature": ""}
        case "text":
            return {"type": "text", "text": text}
        case "call":
            return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": _parse_input(text)}


def _parse_input(arguments: str) -> JsonObject:
    """Read what the model wrote; where that is no JSON object, the call is shown without input.

    SDKs can neither read nor send lone surrogates, so U+FFFD takes their place.
    """
    try:
        value: object = json.loads(mend_surrogates(arguments.encode()))
    except (ValueError, RecursionError):
        return {}
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _ending(answer: ChatAnswer) -> JsonObject:
    action = answer.actions[0] if answer.actions else None
    reason = find_finish(action.finish_reason if action else None).stop_reason
    if reason == "end_turn" and action and (action.message or {}).get("tool_calls"):
        reason = "tool_use"  # an engine says "stop" where the tool was named
    sequence = answer.stop_reason if reason == "end_turn" and isinstance(answer.stop_reason, str) else None
    return {"stop_reason": "stop_sequence" if sequence is not None else reason, "stop_sequence": sequence}


def _usage(answer: ChatAnswer) -> JsonObject:
    usage = count_usage(answer)
    cached = {"cache_read_input_tokens": usage.cached} if usage.cached is not None else {}
    fresh = usage.prompt - (usage.cached or 0)
    return {"input_tokens": fresh, "output_tokens": usage.sampled, **cached}
