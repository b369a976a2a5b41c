"""OpenAI's responses API, ``/v1/responses``, translated from and to chat completions.

One answer has several items (reasoning, message, function calls); together they are one assistant message.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.errors import BadInputError, NotFoundError
from agent_layer.gateway.dialects.base import Exchange, LRUCache
from agent_layer.gateway.dialects.chat import ChatRequest, Pieces, read_pieces
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.endings import find_failure, find_finish
from agent_layer.gateway.dialects.stream import Block, Events, TranslatedStream, join_blocks, split_blocks
from agent_layer.gateway.dialects.turns import (
    Format,
    are_equal_json,
    assistant_message,
    count_usage,
    encoded,
    function_tool,
    image_part,
    join_content,
    named_choice,
    objects_in,
    show_sampled,
    text_part,
    tool_call,
    translated,
)
from agent_layer.schema import UNREADABLE, JsonObject


def to_messages(items: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the chat messages that these items stand for.

    Raises: BadInputError: an item of a kind that only OpenAI's own servers know.
    """
    turns = _Turns()
    for item in items:
        turns.take(item)
    turns.close()
    return turns.messages


@dataclass(slots=True)
class _Turns:
    messages: list[JsonObject] = field(default_factory=list[JsonObject])
    _thoughts: list[str] = field(default_factory=list[str])
    _texts: list[str] | None = None
    _calls: list[JsonObject] = field(default_factory=list[JsonObject])

    def take(self, item: JsonObject) -> None:
        match item:
            case {"type": "reasoning"}:
                if self._texts is not None or self._calls:
                    self.close()
                shown = objects_in(item.get("content")) or objects_in(item.get("summary"))
                self._thoughts += [str(part.get("text", "")) for part in shown]
            case {"type": "function_call", "call_id": str(call_id), "name": str(name), "arguments": str(arguments)}:
                self._calls.append(tool_call(call_id, name, arguments))
            case {"type": "function_call_output", "call_id": str(call_id), "output": output}:
                self._add({"role": "tool", "tool_call_id": call_id, "content": join_content(_parts(output))})
            case {"role": "assistant", "content": content}:
                if self._texts is not None or self._calls:
                    self.close()
                self._texts = [str(part.get("text") or part.get("refusal") or "") for part in objects_in(content)]
            case {"role": str(role), "content": content}:
                self._add({"role": role, "content": join_content(_parts(content))})
            case _:
                raise BadInputError(
                    f"responses request: expected items of type message, reasoning, function_call or"
                    f" function_call_output, found {item.get('type')!r}; only OpenAI's own servers know it"
                )

    def close(self) -> None:
        """End the assistant's turn, if it is one."""
        if self._thoughts or self._texts is not None or self._calls:
            self.messages.append(assistant_message(self._texts or [], self._thoughts, self._calls))
        self._thoughts, self._texts, self._calls = [], None, []

    def _add(self, message: JsonObject) -> None:
        self.close()
        self.messages.append(message)


def _parts(content: object) -> list[JsonObject]:
    return [_part(part) for part in objects_in(content)]


def _part(part: JsonObject) -> JsonObject:
    """Translate what chat completions know; what they do not, the engine may."""
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            return text_part(text)
        case {"type": "input_image", "image_url": str(url)}:
            return image_part(url, part.get("detail"))
        case {"type": "input_file"}:
            return {"type": "file", "file": {name: value for name, value in part.items() if name != "type"}}
        case _:
            return part


ReadConversation: TypeAlias = Callable[[str], Sequence[msgspec.Raw]]
"""Response id → all messages up to and with that answer."""
ResolveItem: TypeAlias = Callable[[JsonObject], JsonObject]
"""Item of the input → the item as it was answered, if it names or repeats one; else the same."""

_NO_PLACE = frozenset(
    {"include", "truncation", "stream_options", "max_tool_calls", "moderation", "context_management", "background"}
)
"""What an engine has no use for; recorded with the sampling asked, and left out. Harmless members: ``members.py``."""
_SHAPING = frozenset({"truncation", "context_management", "moderation"})
"""Those among them that change what the model reads or what comes of its answer."""
_TRANSLATED = frozenset(
    {"input", "instructions", "previous_response_id", "tools", "tool_choice", "text", "reasoning", "max_output_tokens"}
)
_NOT_SAMPLING = frozenset(
    {"input", "instructions", "previous_response_id", "tools", "model", "stream", "stream_options", "include"}
    | {"return_token_ids"}
)
_SHOW_LOGPROBS = "message.output_text.logprobs"
_UNSUPPORTED = ("background", "conversation", "prompt")


class _Tool(msgspec.Struct):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class _Text(msgspec.Struct):
    format: Format | None = None
    verbosity: str | None = None


class _Body(msgspec.Struct):
    input: str | list[JsonObject] = []
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | JsonObject | None = None
    text: _Text | None = None
    reasoning: JsonObject | None = None
    max_output_tokens: int | None = None
    background: bool | None = None
    conversation: object = None
    prompt: object = None
    include: list[str] | None = None
    store: bool | None = None


_BODY: Final = msgspec.json.Decoder(_Body)


def read_responses(body: bytes, read_conversation: ReadConversation, resolve_item: ResolveItem) -> ChatRequest:
    """Read a client's body.

    Args:
        body: JSON text.
        read_conversation: finds what a previous response continued and said.
        resolve_item: finds the item that an ``item_reference`` names, and how the model wrote arguments.

    Raises: BadInputError: it is no such request, or has what a chat completion has no place for.
    """
    try:
        return _build_request(_BODY.decode(body), read_pieces(body), read_conversation, resolve_item)
    except UNREADABLE as error:
        raise BadInputError(
            f"responses request: expected a body of OpenAI's responses API, found {error}; see its reference"
        ) from error


def _build_request(
    parsed: _Body, pieces: Pieces, read_conversation: ReadConversation, resolve_item: ResolveItem
) -> ChatRequest:
    for name in _UNSUPPORTED:
        if getattr(parsed, name):
            raise BadInputError(f"responses request: expected no {name}, which the gateway cannot do; leave it out")
    items: list[JsonObject] = (
        [{"role": "user", "content": parsed.input}] if isinstance(parsed.input, str) else parsed.input
    )
    added = [encoded(message) for message in to_messages(map(resolve_item, items))]
    before = read_conversation(parsed.previous_response_id) if parsed.previous_response_id else ()
    system = [{"role": "system", "content": parsed.instructions}] if parsed.instructions else []
    request = translated([*system, *before, *added], _fields(parsed, pieces), pieces, _NOT_SAMPLING, _SHAPING)
    return msgspec.structs.replace(request, shows_logprobs=_SHOW_LOGPROBS in (parsed.include or []))


def _fields(parsed: _Body, pieces: Pieces) -> JsonObject:
    """Everything but the messages."""
    text, reasoning = parsed.text or _Text(), parsed.reasoning or {}
    return {
        **{name: piece for name, piece in pieces.items() if name not in _TRANSLATED | _NO_PLACE},
        "max_tokens": parsed.max_output_tokens,
        "tools": [_tool(tool) for tool in parsed.tools] if parsed.tools else None,
        "tool_choice": _choice(parsed.tool_choice),
        "response_format": text.format.to_chat() if text.format else None,
        "verbosity": text.verbosity,
        "reasoning_effort": reasoning.get("effort"),
    }


def _tool(tool: _Tool) -> JsonObject:
    if tool.type != "function" or tool.name is None:
        raise BadInputError(
            f"tool: expected type 'function' with a name, found type {tool.type!r}, which only OpenAI's own servers"
            " run; give the agent a function that it runs itself"
        )
    fields = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
    return function_tool(tool.name, fields)


def _choice(choice: str | JsonObject | None) -> object:
    match choice:
        case {"type": "function", "name": str(name)}:
            return named_choice(name)
        case {"type": "allowed_tools", "mode": mode, "tools": tools}:
            allowed = [named_choice(str(tool.get("name"))) for tool in objects_in(tools)]
            return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}}
        case _:
            return choice


Keep: TypeAlias = Callable[[Exchange, list[JsonObject], list[Block] | None], None]
"""Remembers the items of an answer and, where it is complete, its blocks."""
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
_NULL: Final = msgspec.Raw(b"null")


@dataclass(slots=True)
class ResponseWriter:
    """Writes one response."""

    exchange: Exchange
    keep: Keep
    _numbers: "count[int]" = field(default_factory=count)

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
        self.keep(self.exchange, plain, blocks if status == "completed" else None)
        items = [self._item(block, block.text, status, answer.shown_logprobs) for block in blocks]
        details = None if finish.is_complete else {"reason": finish.incomplete}
        extra: JsonObject = {"incomplete_details": details, "usage": _usage(answer)}
        return {**self._response(status, items), **extra, **show_sampled(answer, self.exchange.request)}

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
        return [added, self._emit("response.content_part.added", block, content_index=0, part=_written_part(block, ""))]

    def grow(self, block: Block, text: str) -> Events:
        """Text was added to it."""
        return [self._emit(f"response.{_NAMES[block.kind]}.delta", block, delta=text, **_place_block(block))]

    def end(self, block: Block) -> Events:
        """It is whole."""
        text, item = block.text, self._item(block, block.text, "completed")
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

    def _make_block_id(self, block: Block) -> str:
        return f"{_PREFIXES[block.kind]}_{self.exchange.call_id}_{block.index}"

    def _item(
        self, block: Block, text: str | None, status: _Status, logprobs: Sequence[msgspec.Raw] = ()
    ) -> JsonObject:
        content = [] if text is None else [_written_part(block, text, logprobs)]
        match block.kind:
            case "reasoning":
                return {"id": self._make_block_id(block), "type": "reasoning", "summary": [], "content": content}
            case "text":
                own = {"id": self._make_block_id(block), "type": "message", "role": "assistant"}
                return {**own, "status": status, "content": content}
            case "call":
                own = {"id": self._make_block_id(block), "type": "function_call", "call_id": block.call_id}
                return {**own, "name": block.name, "arguments": text or "", "status": status}

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
    usage = count_usage(answer)
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached or 0, "cache_write_tokens": 0},
        "output_tokens": usage.sampled,
        "output_tokens_details": {"reasoning_tokens": usage.thought or 0},
        "total_tokens": usage.prompt + usage.sampled,
    }


class _StoredResponse(msgspec.Struct, array_like=True):
    """What a response added to its conversation."""

    before: str | None
    """The response that it continues."""
    messages: list[msgspec.Raw]


@dataclass(kw_only=True)
class Responses:
    """OpenAI's responses. Each is remembered within its rollout: for ``previous_response_id``, and by its items."""

    shelf: LRUCache = field(default_factory=LRUCache)

    def read(self, body: bytes, trajectory_id: str) -> ChatRequest:
        """Read a client's body."""
        return read_responses(
            body,
            lambda response_id: self._read_conversation(trajectory_id, response_id),
            lambda item: self._resolve_item(trajectory_id, item),
        )

    def write(self, answer: ChatAnswer, exchange: Exchange) -> bytes:
        """Return the response."""
        return msgspec.json.encode(ResponseWriter(exchange, self._keep).whole(answer))

    def stream(self, exchange: Exchange) -> TranslatedStream:
        """Begin a streamed response."""
        return TranslatedStream(
            ResponseWriter(exchange, self._keep), exchange.num_choices, exchange.request.shows_logprobs
        )

    def _keep(self, exchange: Exchange, items: list[JsonObject], blocks: list[Block] | None) -> None:
        """Remember the items, and what a response adds to the one that it continues: the input, and the answer."""
        kept_fields = _RESPONSES_BODY.decode(
            _ENCODER.encode({name: exchange.request.client_fields.get(name, _NULL) for name in _KEPT})
        )
        for item in items:
            if item["type"] == "function_call":
                name = (exchange.trajectory_id, f"call {item['call_id']}")
                self.shelf.keep(name, str(item["arguments"]).encode())
            if kept_fields.store is not False:
                self.shelf.keep((exchange.trajectory_id, str(item["id"])), msgspec.json.encode(item))
        if kept_fields.store is False or blocks is None:
            return
        before = kept_fields.previous_response_id
        num_before = len(self._read_conversation(exchange.trajectory_id, before)) if before else 0
        added = exchange.request.messages[num_before + bool(kept_fields.instructions) :]
        stored = _StoredResponse(before, [*added, encoded(join_blocks(blocks))])
        self.shelf.keep((exchange.trajectory_id, f"resp_{exchange.call_id}"), msgspec.json.encode(stored))

    def _resolve_item(self, trajectory_id: str, item: JsonObject) -> JsonObject:
        match item:
            case {"type": "item_reference", "id": str(item_id)}:
                if (found := self.shelf.find((trajectory_id, item_id))) is None:
                    raise NotFoundError(
                        f"item {item_id}: expected it in an answer of this rollout, but it is not remembered (any"
                        " more); send the item itself instead of an item_reference, as clients do with store = false"
                    )
                return _ITEM.decode(found)
            case {"type": "function_call", "call_id": str(call_id), "arguments": str(arguments)}:
                written = (self.shelf.find((trajectory_id, f"call {call_id}")) or b"").decode()
                return {**item, "arguments": written} if are_equal_json(written, arguments) else item
            case _:
                return item

    def _read_conversation(self, trajectory_id: str, response_id: str) -> Sequence[msgspec.Raw]:
        """Return all messages up to a response's answer, this included, without the instructions."""
        turns: list[list[msgspec.Raw]] = []
        name: str | None = response_id
        while name is not None:
            if (found := self.shelf.find((trajectory_id, name))) is None:
                raise NotFoundError(
                    f"response {name}: expected it in this rollout, but it is not remembered (any more); send the"
                    " conversation as input instead of previous_response_id"
                )
            stored = _STORED_RESPONSE.decode(found)
            turns.append(stored.messages)
            name = stored.before
        return [message for turn in reversed(turns) for message in turn]


class _ResponsesBody(msgspec.Struct):
    store: bool | None = None
    previous_response_id: str | None = None
    instructions: str | None = None


_RESPONSES_BODY = msgspec.json.Decoder(_ResponsesBody)
_KEPT: Final = _ResponsesBody.__struct_fields__
_ENCODER: Final = msgspec.json.Encoder()
_ITEM: Final = msgspec.json.Decoder(JsonObject)
_STORED_RESPONSE = msgspec.json.Decoder(_StoredResponse)
