"""This file holds the dialect of Anthropic's messages API: ``/v1/messages``."""

import json
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec

from agent_layer.gateway.dialects.blocks import Block, Events, blocks_of
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.dialect import Exchange
from agent_layer.gateway.dialects.messages_request import read_messages
from agent_layer.gateway.dialects.refusals import anthropic_error
from agent_layer.gateway.dialects.shelf import TextShelf
from agent_layer.gateway.dialects.translated_stream import TranslatedStream
from agent_layer.gateway.dialects.usage import sampled_of, usage_of
from agent_layer.schema.record import JsonObject

__all__ = ["Messages"]

_STOP_REASONS: Final = {"length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use"}


@dataclass(kw_only=True)
class Messages:
    """Anthropic's dialect. Clients send tool inputs back parsed: how the model wrote them is remembered here."""

    shelf: TextShelf = field(default_factory=TextShelf)

    def read(self, body: bytes, trajectory_id: str) -> ChatRequest:
        """Read a client's body."""
        return read_messages(body, lambda call_id, value: self._arguments_of((trajectory_id, call_id), value))

    def write(self, answer: ChatAnswer, exchange: Exchange) -> bytes:
        """Give the message."""
        return msgspec.json.encode(_MessageWriter(exchange, self.shelf).whole(answer))

    def stream(self, exchange: Exchange) -> TranslatedStream:
        """Begin a streamed message."""
        return TranslatedStream(_MessageWriter(exchange, self.shelf), exchange.num_choices)

    def _arguments_of(self, name: tuple[str, str], value: object) -> str:
        """Give the text that the model wrote, if it says the same as what the client sent back."""
        if (written := self.shelf.find(name)) is not None:
            text = written.decode()
            if _input_of(text) == value:
                return text
        return json.dumps({} if value is None else value, ensure_ascii=False)


@dataclass(slots=True)
class _MessageWriter:
    exchange: Exchange
    shelf: TextShelf

    def whole(self, answer: ChatAnswer) -> JsonObject:
        message = answer.actions[0].message or {}
        content = [self._told(block) for block in blocks_of(message)]
        usage = _usage(answer)
        return {
            **self._empty(),
            "content": content,
            **_ending(answer),
            "usage": usage,
            **sampled_of(answer, self.exchange.request),
        }

    def start(self, num_prompt_tokens: int | None) -> Events:
        usage = {"input_tokens": num_prompt_tokens or 0, "output_tokens": 0}
        return [{"type": "message_start", "message": {**self._empty(), "usage": usage}}]

    def begin(self, block: Block) -> Events:
        return [{"type": "content_block_start", "index": block.index, "content_block": _shown(block, "")}]

    def grow(self, block: Block, text: str) -> Events:
        kind, name = _DELTAS[block.kind]
        return [_delta(block, {"type": kind, name: text})]

    def end(self, block: Block) -> Events:
        self._told(block)
        signature: JsonObject = {"type": "signature_delta", "signature": ""}
        signed = [_delta(block, signature)] if block.kind == "reasoning" else []
        return [*signed, {"type": "content_block_stop", "index": block.index}]

    def finish(self, answer: ChatAnswer) -> Events:
        told = {"delta": _ending(answer), "usage": _usage(answer), **sampled_of(answer, self.exchange.request)}
        return [{"type": "message_delta", **told}, {"type": "message_stop"}]

    def fail(self, code: str, message: str) -> Events:
        return [anthropic_error(500, code, message)]

    def _empty(self) -> JsonObject:
        return {
            "id": f"msg_{self.exchange.call_id}",
            "type": "message",
            "role": "assistant",
            "model": self.exchange.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }

    def _told(self, block: Block) -> JsonObject:
        if block.kind == "call":
            self.shelf.keep((self.exchange.trajectory_id, block.call_id), block.text.encode())
        return _shown(block, block.text)


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
            return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": _input_of(text)}


def _input_of(arguments: str) -> JsonObject:
    """Read what the model wrote; where that is no JSON object, the call is shown without input."""
    try:
        value: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _ending(answer: ChatAnswer) -> JsonObject:
    action = answer.actions[0] if answer.actions else None
    reason = _STOP_REASONS.get(str(action.finish_reason), "end_turn") if action else None
    if reason != "end_turn":
        return {"stop_reason": reason, "stop_sequence": None}
    if action and (action.message or {}).get("tool_calls"):
        return {"stop_reason": "tool_use", "stop_sequence": None}  # an engine says "stop" where the tool was named
    if isinstance(answer.stop_reason, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stop_reason}
    return {"stop_reason": reason, "stop_sequence": None}


def _usage(answer: ChatAnswer) -> JsonObject:
    usage = usage_of(answer)
    cached = {"cache_read_input_tokens": usage.cached} if usage.cached is not None else {}
    fresh = usage.prompt - (usage.cached or 0)
    return {"input_tokens": fresh, "output_tokens": usage.sampled, **cached}
