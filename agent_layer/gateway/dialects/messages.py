"""Anthropic's messages API, ``/v1/messages``, translated from and to chat completions."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.base import Exchange, LRUCache
from agent_layer.gateway.dialects.chat import ChatRequest, read_pieces
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.endings import find_failure, find_finish
from agent_layer.gateway.dialects.refusals import RefusedError, anthropic_error
from agent_layer.gateway.dialects.stream import Block, Events, TranslatedStream, join_blocks, split_blocks
from agent_layer.gateway.dialects.tools import Tool, read_anthropic_tools
from agent_layer.gateway.dialects.turns import (
    Format,
    SurrogateMender,
    assistant_message,
    continue_last,
    count_usage,
    encoded,
    image_part,
    join_content,
    named_choice,
    objects_in,
    open_reasoning,
    seal_reasoning,
    show_sampled,
    text_part,
    tool_call,
    translated,
)
from agent_layer.schema import UNREADABLE, JsonObject, content_hash, mend_surrogates

_NO_PLACE = frozenset({"container", "context_management", "output_format", "mcp_servers"})
"""What an engine has no use for; recorded with the sampling asked, and left out. Harmless members: ``members.py``."""
_SHAPING = frozenset({"container", "context_management", "mcp_servers"})
"""Those among them that change what the model reads, or which tools it has."""
_TRANSLATED = frozenset(
    {"messages", "system", "tools", "tool_choice", "max_tokens", "stop_sequences", "thinking", "output_config"}
    | {"thread"}
)
_NOT_SAMPLING = frozenset({"messages", "system", "tools", "model", "stream", "return_token_ids", "thread"})


class _Message(msgspec.Struct):
    role: str
    content: str | list[JsonObject]


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


class _Thread(msgspec.Struct):
    """A conversation that the server remembers, so that the client sends only what is new."""

    type: Literal["create", "continue"]
    previous_message_id: str | None = None


class _Body(msgspec.Struct):
    messages: list[_Message]
    max_tokens: int | None = None
    system: str | list[JsonObject] | None = None
    tools: list[Tool] | None = None
    tool_choice: JsonObject | None = None
    stop_sequences: list[str] | None = None
    thinking: JsonObject | None = None
    output_config: _OutputConfig | None = None
    output_format: Format | None = None
    thread: _Thread | None = None


_BODY: Final = msgspec.json.Decoder(_Body)


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
    try:
        parsed = _BODY.decode(body)
        pieces = read_pieces(body)
        chat_messages = [one for message in parsed.messages for one in _chat_messages(message)]
        system = [{"role": "system", "content": join_content(_parts(parsed.system))}] if parsed.system else []
        before = _continued(parsed, read_thread)
        config, tools = parsed.output_config or _OutputConfig(), read_anthropic_tools(parsed.tools or ())
        choice = tools.restrict(_choice(parsed.tool_choice or {}))
        has_choice = choice is not None or not tools.dropped
        fields: JsonObject = {
            **{name: piece for name, piece in pieces.items() if name not in _TRANSLATED | _NO_PLACE},
            "max_tokens": parsed.max_tokens,
            "stop": parsed.stop_sequences or None,
            "tools": tools.functions or before.tools,
            "tool_choice": choice,
            "parallel_tool_calls": _are_parallel(parsed.tool_choice or {}) if has_choice else None,
            "response_format": wanted.to_chat() if (wanted := config.format or parsed.output_format) else None,
            **_thinking(parsed.thinking or {}, config.effort),
            **continue_last(chat_messages),
        }
        dropped = [*tools.dropped, *(name for message in parsed.messages for name in _find_dropped(message))]
        return translated([*system, *before.messages, *chat_messages], fields, pieces, _NOT_SAMPLING, _SHAPING, dropped)
    except (*UNREADABLE, KeyError) as error:
        raise BadInputError(
            f"messages request: expected a body of Anthropic's messages API, found {error}; see its reference"
        ) from error


def _continued(parsed: _Body, read_thread: ReadThread) -> ThreadTurns:  # kept: it refuses inside the caller's try
    if parsed.thread is None or parsed.thread.type == "create":
        return ThreadTurns()
    if parsed.system or parsed.tools:
        raise RefusedError(
            400,
            "thread_fingerprint_mismatch",
            "messages request: expected a continued thread to keep system and tools of its beginning, found them sent"
            " again; leave them out, or send the whole conversation with thread type 'create'",
        )
    return read_thread(parsed.thread.previous_message_id or "")


def _find_dropped(message: _Message) -> Iterator[str]:
    """Yield the names of what no chat message can carry."""
    for block in objects_in(message.content):
        match block:
            case {"type": "tool_result", "is_error": True}:
                yield "is_error"
            case {"type": "redacted_thinking"} if open_reasoning(block.get("data")) is None:
                yield "redacted_thinking"
            case {"type": "thinking", "thinking": "", "signature": str(sealed)} if open_reasoning(sealed) is None:
                yield "thinking.signature"
            case _:
                pass


def _chat_messages(message: _Message) -> Iterator[JsonObject]:
    blocks = objects_in(message.content)
    if message.role == "assistant":
        yield _assistant(blocks)
        return
    chat_messages: list[JsonObject] = []
    for block in blocks:
        if block.get("type") != "tool_result":
            chat_messages.append(block)
            continue
        if chat_messages:
            yield {"role": message.role, "content": join_content(_parts(chat_messages))}
            chat_messages = []
        content = join_content(_parts(block.get("content")))
        yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}
    if chat_messages or not blocks:
        yield {"role": message.role, "content": join_content(_parts(chat_messages))}


def _assistant(blocks: list[JsonObject]) -> JsonObject:
    texts, thoughts, calls = list[str](), list[str](), list[JsonObject]()
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "thinking", "thinking": str(text)}:
                thoughts.append(text or open_reasoning(block.get("signature")) or "")
            case {"type": "tool_use", "id": str(call_id), "name": str(name)}:
                calls.append(tool_call(call_id, name, _write_input(block.get("input"))))
            case {"type": "redacted_thinking"}:
                thoughts.append(open_reasoning(block.get("data")) or "")
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
            return image_part(_read_source(block).address)
        case {"type": "document", "source": {"type": "base64"}}:
            return {"type": "file", "file": {"file_data": _read_source(block).address}}
        case _:
            return {name: value for name, value in block.items() if name != "cache_control"}


def _read_source(block: JsonObject) -> _Source:
    return msgspec.convert(block["source"], _Source)


def _choice(choice: JsonObject) -> object:
    match choice:
        case {"type": "tool", "name": str(name)}:
            return named_choice(name)
        case {"type": "any"}:
            return "required"
        case _:
            return choice.get("type")


def _are_parallel(choice: JsonObject) -> bool | None:
    is_single = choice.get("disable_parallel_tool_use")
    return None if is_single is None else not is_single


def _thinking(thinking: JsonObject, effort: object) -> JsonObject:
    """Express how much to think in vLLM's words."""
    match thinking:
        case {"type": "disabled"}:
            return {"reasoning_effort": "none"}
        case {"budget_tokens": int(budget)}:
            return {"reasoning_effort": effort, "thinking_token_budget": budget}
        case _:
            return {"reasoning_effort": effort}


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
    names = exchange.memory.keep_messages(map(bytes, [*exchange.request.messages[num_before:], message_json]))
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
_THREAD: Final = msgspec.json.Decoder(_Thread | None)
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


def _write_input(value: object) -> str:
    return json.dumps({} if value is None else value, ensure_ascii=False)


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
