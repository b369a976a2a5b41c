"""Answers in the form of OpenAI's responses: a response whole, and the events of one that is streamed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.gateway.dialects.base import Exchange
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.endings import find_failure
from agent_layer.gateway.dialects.response_memory import keep_answer
from agent_layer.gateway.dialects.stream import Block, Events, split_blocks
from agent_layer.gateway.dialects.turns import TokenCounts, count_usage, show_sampled
from agent_layer.schema import JsonObject
from agent_layer.translation import ToolName, find_finish, read_custom_input, read_tool_names, seal_reasoning

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
_PREFIXES: Final = {"reasoning": "rs", "text": "msg", "call": "fc"}
_SEALED: Final = b'"reasoning.encrypted_content"'
"""What a client includes that keeps reasoning in no other form."""
_NULL: Final = msgspec.Raw(b"null")


@dataclass(slots=True)
class ResponseWriter:
    """Writes one response."""

    exchange: Exchange
    socket: str | None = None
    """Socket on which it is answered; None: by HTTP."""
    _numbers: "count[int]" = field(default_factory=count)
    _tools: dict[str, ToolName] | None = None
    """Tools that are no plain functions; None: not read yet."""

    def whole(self, answer: ChatAnswer, sent: list[Block] | None = None) -> JsonObject:
        """Return the response object.

        Args:
            answer: of the engine.
            sent: its blocks, where they were streamed.
        """
        action = answer.actions[0]
        if (error := find_failure(answer)) is not None:
            return {**self._response("failed", []), "error": {"code": "server_error", "message": error}}
        blocks, finish = split_blocks(action.message or {}) if sent is None else sent, find_finish(action.finish_reason)
        status: _Status = "completed" if finish.is_complete else "incomplete"
        plain = [self._item(block, block.text, status) for block in blocks]
        details = None if finish.is_complete else {"reason": finish.incomplete}
        extra: JsonObject = {"incomplete_details": details, "usage": _usage(answer)}
        response = {**self._response(status, []), **extra}
        keep_answer(self.exchange, response, plain, blocks if status == "completed" else None, self.socket)
        items = [self._item(block, block.text, status, answer.shown_logprobs) for block in blocks]
        return {**response, "output": items, **show_sampled(answer, self.exchange.request)}

    def warm_up(self) -> Events:
        """Return the events of a response for which nothing is asked of the model, and which can be continued."""
        response = {**self._response("completed", []), "usage": write_usage(TokenCounts(0, 0, None, None))}
        keep_answer(self.exchange, response, [], [], self.socket)
        return [*self.start(None), self._event("response.completed", response=response)]

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
            return [added]  # a tool that takes a text gets it in one piece: of its JSON, none is known to be whole
        return [added, self._emit("response.content_part.added", block, content_index=0, part=_written_part(block, ""))]

    def grow(self, block: Block, text: str) -> Events:
        """Text was added to it."""
        if self._name_tool(block).is_custom:
            return []
        return [self._emit(f"response.{_NAMES[block.kind]}.delta", block, delta=text, **_place_block(block))]

    def end(self, block: Block) -> Events:
        """It is whole."""
        text, item = block.text, self._item(block, block.text, "completed")
        if self._name_tool(block).is_custom:
            taken, name = read_custom_input(text), "response.custom_tool_call_input"
            events = [self._emit(f"{name}.delta", block, delta=taken), self._emit(f"{name}.done", block, input=taken)]
        else:
            whole = {"arguments": text, "name": block.name} if block.kind == "call" else {"text": text}
            events = [self._emit(f"response.{_NAMES[block.kind]}.done", block, **whole, **_place_block(block))]
        if block.kind != "call":
            events.append(
                self._emit("response.content_part.done", block, content_index=0, part=_written_part(block, text))
            )
        return [*events, self._event("response.output_item.done", output_index=block.index, item=item)]

    def finish(self, answer: ChatAnswer, blocks: list[Block]) -> Events:
        """End the stream; an answer without any choice is an error."""
        if not answer.actions:
            return self.fail("server_error", "the engine ended without an answer")
        response = self.whole(answer, blocks)
        return [self._event(f"response.{response['status']}", response=response)]

    def fail(self, code: str, message: str) -> Events:
        """The answer will not come."""
        error: JsonObject = {"code": code, "message": message}
        response = {**self._response("failed", []), "error": {"code": "server_error", "message": message}}
        return [self._event("error", **error, param=None), self._event("response.failed", response=response)]

    def _event(self, name: str, /, **fields: object) -> JsonObject:
        return {"type": name, "sequence_number": next(self._numbers), **fields}

    def _emit(self, name: str, block: Block, /, **fields: object) -> JsonObject:
        return self._event(name, item_id=self._make_block_id(block), output_index=block.index, **fields)

    def _name_tool(self, block: Block) -> ToolName:
        """Return how the client names the tool that a block calls."""
        if self._tools is None:
            self._tools = read_tool_names(self.exchange.request.client_fields.get("tools", _NULL))
        return self._tools.get(block.name) or ToolName(block.name)

    def _make_block_id(self, block: Block) -> str:
        return f"{_PREFIXES[block.kind]}_{self.exchange.call_id}_{block.index}"

    def _item(
        self, block: Block, text: str | None, status: _Status, logprobs: Sequence[msgspec.Raw] = ()
    ) -> JsonObject:
        content = [] if text is None else [_written_part(block, text, logprobs)]
        client_fields = self.exchange.request.client_fields
        match block.kind:
            case "reasoning":
                own: JsonObject = {"id": self._make_block_id(block), "type": "reasoning"}
                own |= {"summary": [], "content": content}
                is_sealed = text is not None and _SEALED in bytes(client_fields.get("include", b""))
                return own | ({"encrypted_content": seal_reasoning(text or "")} if is_sealed else {})
            case "text":
                own = {"id": self._make_block_id(block), "type": "message", "role": "assistant"}
                return {**own, "status": status, "content": content}
            case "call":
                tool = self._name_tool(block)
                own = {"id": self._make_block_id(block), "call_id": block.call_id, "name": tool.name, "status": status}
                own |= {} if tool.namespace is None else {"namespace": tool.namespace}
                if tool.is_custom:
                    return {**own, "type": "custom_tool_call", "input": read_custom_input(text) if text else ""}
                return {**own, "type": "function_call", "arguments": text or ""}

    def _response(self, status: _Status, output: list[JsonObject]) -> JsonObject:
        client_fields = self.exchange.request.client_fields
        return {
            "id": f"resp_{self.exchange.call_id}",
            "object": "response",
            "created_at": self.exchange.at,
            "status": status,
            "model": self.exchange.model,
            **_EMPTY,
            **{name: piece for name, piece in client_fields.items() if name in _ECHOED and _is_echoed(piece)},
            "output": output,
        }


_MAX_ECHO_LENGTH: Final = 1 << 20
"""Bytes of a member. A stream repeats the response three times, which must not stall the process."""


def _is_echoed(piece: msgspec.Raw) -> bool:
    return piece != _NULL and memoryview(piece).nbytes <= _MAX_ECHO_LENGTH


_NAMES: Final = {"reasoning": "reasoning_text", "text": "output_text", "call": "function_call_arguments"}


def _place_block(block: Block) -> JsonObject:
    match block.kind:
        case "reasoning":
            return {"content_index": 0}
        case "text":
            return {"content_index": 0, "logprobs": []}
        case "call":
            return {}


def _written_part(block: Block, text: str, logprobs: Sequence[msgspec.Raw] = ()) -> JsonObject:
    if block.kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _usage(answer: ChatAnswer) -> JsonObject:
    return write_usage(count_usage(answer))


def write_usage(usage: TokenCounts) -> JsonObject:
    """Return counts of tokens as responses have them."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached or 0, "cache_write_tokens": 0},
        "output_tokens": usage.sampled,
        "output_tokens_details": {"reasoning_tokens": usage.thought or 0},
        "total_tokens": usage.prompt + usage.sampled,
    }
