"""Anthropic's messages API, ``/v1/messages``, translated from and to chat completions."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.base import Exchange, LRUCache
from agent_layer.gateway.dialects.chat import ChatRequest, Pieces, read_pieces
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.refusals import anthropic_error
from agent_layer.gateway.dialects.stream import Block, Events, TranslatedStream, split_blocks
from agent_layer.gateway.dialects.turns import (
    Format,
    assistant_message,
    content_of,
    function_tool,
    image_part,
    named_choice,
    objects_in,
    sampled_of,
    text_part,
    tool_call,
    translated,
    usage_of,
)
from agent_layer.schema import UNREADABLE, JsonObject

ArgumentsOf: TypeAlias = Callable[[str, object], str]
"""(call id, input) → the arguments as the model wrote them."""

_NO_PLACE = frozenset(
    {"metadata", "service_tier", "container", "context_management", "cache_control", "inference_geo", "speed"}
    | {"diagnostics", "user_profile_id", "workspace_id", "betas", "output_format", "mcp_servers"}
)
"""What an engine has no use for; recorded with the sampling asked, and left out."""
_TRANSLATED = frozenset(
    {"messages", "system", "tools", "tool_choice", "max_tokens", "stop_sequences", "thinking", "output_config"}
)
_NOT_SAMPLING = frozenset({"messages", "system", "tools", "model", "stream", "metadata", "return_token_ids"})


class _Message(msgspec.Struct):
    role: str
    content: str | list[JsonObject]


class _Tool(msgspec.Struct):
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: JsonObject | None = None
    strict: bool | None = None


class _Source(msgspec.Struct):
    type: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""

    @property
    def address(self) -> str:
        """Where it lies, or all of it."""
        return self.url if self.type == "url" else f"data:{self.media_type};base64,{self.data}"


class _OutputConfig(msgspec.Struct):
    format: Format | None = None
    effort: str | None = None


class _Body(msgspec.Struct):
    messages: list[_Message]
    max_tokens: int | None = None
    system: str | list[JsonObject] | None = None
    tools: list[_Tool] | None = None
    tool_choice: JsonObject | None = None
    stop_sequences: list[str] | None = None
    thinking: JsonObject | None = None
    output_config: _OutputConfig | None = None
    output_format: Format | None = None


_BODY: Final = msgspec.json.Decoder(_Body)


def read_messages(body: bytes, arguments_of: ArgumentsOf) -> ChatRequest:
    """Read a client's body.

    Args:
        body: JSON text.
        arguments_of: remembers how the model wrote what the client sends back parsed.

    Raises: BadInputError: it is no such request, or has what a chat completion has no place for.
    """
    try:
        asked = _BODY.decode(body)
        pieces = read_pieces(body)
        said = [one for message in asked.messages for one in _chat_messages(message, arguments_of)]
        system = [{"role": "system", "content": content_of(_parts(asked.system))}] if asked.system else []
        return translated([*system, *said], _fields(asked, pieces), pieces, _NOT_SAMPLING)
    except (*UNREADABLE, KeyError) as error:
        raise BadInputError(
            f"messages request: expected a body of Anthropic's messages API, found {error}; see its reference"
        ) from error


def _fields(asked: _Body, pieces: Pieces) -> JsonObject:
    """Everything but the messages."""
    config = asked.output_config or _OutputConfig()
    return {
        **{name: piece for name, piece in pieces.items() if name not in _TRANSLATED | _NO_PLACE},
        "max_tokens": asked.max_tokens,
        "stop": asked.stop_sequences or None,
        "tools": [_tool(tool) for tool in asked.tools] if asked.tools else None,
        "response_format": wanted.told() if (wanted := config.format or asked.output_format) else None,
        **_choice(asked.tool_choice or {}),
        **_thinking(asked.thinking or {}, config.effort),
    }


def _chat_messages(message: _Message, arguments_of: ArgumentsOf) -> Iterator[JsonObject]:
    blocks = objects_in(message.content)
    if message.role == "assistant":
        yield _assistant(blocks, arguments_of)
        return
    said: list[JsonObject] = []
    for block in blocks:
        if block.get("type") != "tool_result":
            said.append(block)
            continue
        if said:
            yield {"role": message.role, "content": content_of(_parts(said))}
            said = []
        content = content_of(_parts(block.get("content")))
        yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}
    if said or not blocks:
        yield {"role": message.role, "content": content_of(_parts(said))}


def _assistant(blocks: list[JsonObject], arguments_of: ArgumentsOf) -> JsonObject:
    texts, thoughts, calls = list[str](), list[str](), list[JsonObject]()
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "thinking", "thinking": str(text)}:
                thoughts.append(text)
            case {"type": "tool_use", "id": str(call_id), "name": str(name)}:
                calls.append(tool_call(call_id, name, arguments_of(call_id, block.get("input"))))
            case {"type": "redacted_thinking"}:
                pass  # only Anthropic can read it
            case _:
                raise BadInputError(
                    f"messages request: expected text, thinking or tool_use of an assistant, found"
                    f" {block.get('type')!r}; leave it out"
                )
    return assistant_message(texts, thoughts, calls)


def _parts(content: object) -> list[JsonObject]:
    return [_part(block) for block in objects_in(content)]


def _part(block: JsonObject) -> JsonObject:
    """Translate what chat completions know; what they do not, the engine may."""
    match block:
        case {"type": "text", "text": str(text)}:
            return text_part(text)
        case {"type": "document", "source": {"type": "text", "data": str(text)}}:
            return text_part(text)
        case {"type": "image", "source": {"type": "base64" | "url"}}:
            return image_part(_source_of(block).address)
        case {"type": "document", "source": {"type": "base64"}}:
            return {"type": "file", "file": {"file_data": _source_of(block).address}}
        case _:
            return {name: value for name, value in block.items() if name != "cache_control"}


def _source_of(block: JsonObject) -> _Source:
    return msgspec.convert(block["source"], _Source)


def _tool(tool: _Tool) -> JsonObject:
    if tool.input_schema is None:
        raise BadInputError(
            f"tool {tool.name!r}: expected an input_schema, found a tool of type {tool.type!r}, which only Anthropic's"
            " own servers run; give the agent one that it runs itself"
        )
    fields = {"description": tool.description, "parameters": tool.input_schema, "strict": tool.strict}
    return function_tool(tool.name, fields)


def _choice(choice: JsonObject) -> JsonObject:
    is_single = choice.get("disable_parallel_tool_use")
    parallel = {} if is_single is None else {"parallel_tool_calls": not is_single}
    match choice:
        case {"type": "tool", "name": str(name)}:
            return {"tool_choice": named_choice(name), **parallel}
        case {"type": "any"}:
            return {"tool_choice": "required", **parallel}
        case _:
            return {"tool_choice": choice.get("type"), **parallel}


def _thinking(thinking: JsonObject, effort: object) -> JsonObject:
    """Express how much to think in vLLM's words."""
    match thinking:
        case {"type": "disabled"}:
            return {"reasoning_effort": "none"}
        case {"budget_tokens": int(budget)}:
            return {"reasoning_effort": effort, "thinking_token_budget": budget}
        case _:
            return {"reasoning_effort": effort}


_STOP_REASONS: Final = {"length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use"}


@dataclass(kw_only=True)
class Messages:
    """Anthropic's dialect. Clients send tool inputs back parsed: how the model wrote them is remembered here."""

    shelf: LRUCache = field(default_factory=LRUCache)

    def read(self, body: bytes, trajectory_id: str) -> ChatRequest:
        """Read a client's body."""
        return read_messages(body, lambda call_id, value: self._arguments_of((trajectory_id, call_id), value))

    def write(self, answer: ChatAnswer, exchange: Exchange) -> bytes:
        """Return the message."""
        return msgspec.json.encode(_MessageWriter(exchange, self.shelf).whole(answer))

    def stream(self, exchange: Exchange) -> TranslatedStream:
        """Begin a streamed message."""
        return TranslatedStream(_MessageWriter(exchange, self.shelf), exchange.num_choices)

    def _arguments_of(self, name: tuple[str, str], value: object) -> str:
        """Return the text that the model wrote, if it means the same as what the client sent back."""
        if (written := self.shelf.find(name)) is not None:
            text = written.decode()
            if _input_of(text) == value:
                return text
        return json.dumps({} if value is None else value, ensure_ascii=False)


@dataclass(slots=True)
class _MessageWriter:
    exchange: Exchange
    shelf: LRUCache

    def whole(self, answer: ChatAnswer) -> JsonObject:
        message = answer.actions[0].message or {}
        content = [self._told(block) for block in split_blocks(message)]
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
