"""This file holds how an answer is written in the responses API, whole or event by event."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.gateway.dialects.blocks import Block, Events, blocks_of
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.dialect import Exchange
from agent_layer.gateway.dialects.usage import sampled_of, usage_of
from agent_layer.schema.record import JsonObject

__all__ = ["Keep", "ResponseWriter"]

Keep: TypeAlias = Callable[[Exchange, list[Block]], None]
"""Remembers what was answered."""
_Status: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed"]

_EMPTY: Final[JsonObject] = {
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
}
_ECHOED: Final = frozenset(_EMPTY) | {"user", "prompt_cache_key", "safety_identifier", "service_tier", "max_tool_calls"}
_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter", "abort": None}
_PREFIXES: Final = {"reasoning": "rs", "text": "msg", "call": "fc"}
_NULL: Final = msgspec.Raw(b"null")


@dataclass(slots=True)
class ResponseWriter:
    """Writes one response."""

    exchange: Exchange
    keep: Keep
    _numbers: "count[int]" = field(default_factory=count)

    def whole(self, answer: ChatAnswer) -> JsonObject:
        """Give the response object."""
        action = answer.actions[0]
        blocks, reason = blocks_of(action.message or {}), action.finish_reason
        status: _Status = "incomplete" if reason in _INCOMPLETE else "completed"
        if status == "completed":
            self.keep(self.exchange, blocks)
        items = [self._item(block, block.text, status, answer.shown_logprobs) for block in blocks]
        details = {"reason": _INCOMPLETE[reason]} if reason in _INCOMPLETE else None
        told: JsonObject = {"incomplete_details": details, "usage": _usage(answer)}
        return {**self._response(status, items), **told, **sampled_of(answer, self.exchange.request)}

    def start(self, num_prompt_tokens: int | None) -> Events:  # noqa: ARG002  # usage comes with the end
        """An answer comes."""
        response = self._response("in_progress", [])
        return [self._event(f"response.{name}", response=response) for name in ("created", "in_progress")]

    def begin(self, block: Block) -> Events:
        """An item begins, empty."""
        added = self._event(
            "response.output_item.added", output_index=block.index, item=self._item(block, None, "in_progress")
        )
        if block.kind == "call":
            return [added]
        return [added, self._of("response.content_part.added", block, content_index=0, part=_part(block, ""))]

    def grow(self, block: Block, text: str) -> Events:
        """Text was added to it."""
        return [self._of(f"response.{_NAMES[block.kind]}.delta", block, delta=text, **_place_of(block))]

    def end(self, block: Block) -> Events:
        """It is whole."""
        text, item = block.text, self._item(block, block.text, "completed")
        whole = {"arguments": text, "name": block.name} if block.kind == "call" else {"text": text}
        events = [self._of(f"response.{_NAMES[block.kind]}.done", block, **whole, **_place_of(block))]
        if block.kind != "call":
            events.append(self._of("response.content_part.done", block, content_index=0, part=_part(block, text)))
        return [*events, self._event("response.output_item.done", output_index=block.index, item=item)]

    def finish(self, answer: ChatAnswer) -> Events:
        """The answer has come; without any choice nothing can be said of it."""
        if not answer.actions:
            return self.fail("server_error", "the engine ended without an answer")
        response = self.whole(answer)
        return [self._event(f"response.{response['status']}", response=response)]

    def fail(self, code: str, message: str) -> Events:
        """The answer will not come."""
        error: JsonObject = {"code": code, "message": message}
        response = {**self._response("failed", []), "error": {"code": "server_error", "message": message}}
        return [self._event("error", **error, param=None), self._event("response.failed", response=response)]

    def _event(self, name: str, /, **fields: object) -> JsonObject:
        return {"type": name, "sequence_number": next(self._numbers), **fields}

    def _of(self, name: str, block: Block, /, **fields: object) -> JsonObject:
        return self._event(name, item_id=self._id_of(block), output_index=block.index, **fields)

    def _id_of(self, block: Block) -> str:
        return f"{_PREFIXES[block.kind]}_{self.exchange.call_id}_{block.index}"

    def _item(
        self, block: Block, text: str | None, status: _Status, logprobs: Sequence[msgspec.Raw] = ()
    ) -> JsonObject:
        content = [] if text is None else [_part(block, text, logprobs)]
        match block.kind:
            case "reasoning":
                return {"id": self._id_of(block), "type": "reasoning", "summary": [], "content": content}
            case "text":
                own = {"id": self._id_of(block), "type": "message", "role": "assistant"}
                return {**own, "status": status, "content": content}
            case "call":
                own = {"id": self._id_of(block), "type": "function_call", "call_id": block.call_id}
                return {**own, "name": block.name, "arguments": text or "", "status": status}

    def _response(self, status: _Status, output: list[JsonObject]) -> JsonObject:
        asked = self.exchange.request.asked
        return {
            "id": f"resp_{self.exchange.call_id}",
            "object": "response",
            "created_at": self.exchange.at,
            "status": status,
            "model": self.exchange.model,
            **_EMPTY,
            **{name: piece for name, piece in asked.items() if name in _ECHOED and piece != _NULL},
            "output": output,
        }


_NAMES: Final = {"reasoning": "reasoning_text", "text": "output_text", "call": "function_call_arguments"}


def _place_of(block: Block) -> JsonObject:
    match block.kind:
        case "reasoning":
            return {"content_index": 0}
        case "text":
            return {"content_index": 0, "logprobs": []}
        case "call":
            return {}


def _part(block: Block, text: str, logprobs: Sequence[msgspec.Raw] = ()) -> JsonObject:
    if block.kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _usage(answer: ChatAnswer) -> JsonObject:
    usage = usage_of(answer)
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached or 0, "cache_write_tokens": 0},
        "output_tokens": usage.sampled,
        "output_tokens_details": {"reasoning_tokens": usage.thought or 0},
        "total_tokens": usage.prompt + usage.sampled,
    }
