"""Anthropic's messages API in the words of chat completions."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import UNREADABLE, JsonObject, Usage, content_hash
from agent_layer.translation.answer import Answer, read_as, read_events
from agent_layer.translation.finishes import find_reason
from agent_layer.translation.memo import TextMemo
from agent_layer.translation.request import MAX_TURN_BYTES, Losses, Pieces, Translation, Turn, encoded, read_pieces
from agent_layer.translation.sealed import open_reasoning
from agent_layer.translation.tools import ANTHROPIC_TOOLS, Tool
from agent_layer.translation.turns import (
    Format,
    assistant_message,
    continue_last,
    image_part,
    join_answer,
    join_content,
    named_choice,
    objects_in,
    text_part,
    tool_call,
)

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


class Thread(msgspec.Struct):
    """A conversation that the server remembers, so that the client sends only what is new."""

    type: Literal["create", "continue"]
    previous_message_id: str | None = None


class _Repeated(msgspec.Struct):
    """What a conversation repeats, read only to find what is wrong with it."""

    messages: list[_Message]
    tools: list[Tool] | None = None


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]
    max_tokens: int | None = None
    system: str | list[JsonObject] | None = None
    tools: msgspec.Raw = msgspec.Raw(b"null")
    tool_choice: JsonObject | None = None
    stop_sequences: list[str] | None = None
    thinking: JsonObject | None = None
    output_config: _OutputConfig | None = None
    output_format: Format | None = None
    thread: Thread | None = None


_BODY: Final = msgspec.json.Decoder(_Body)


def translate_messages(body: bytes) -> Translation:
    """Translate a client's body.

    Raises: BadInputError: it is no such request, or a tool of the agent's own has no schema.
    """
    try:
        try:
            return _translate(_BODY.decode(body), read_pieces(body))
        except UNREADABLE:
            msgspec.json.decode(body, type=_Repeated)  # whose error says where
            raise
    except (*UNREADABLE, KeyError) as error:
        raise BadInputError(
            f"messages request: expected a body of Anthropic's messages API, found {error}; see its reference"
        ) from error


def _translate(parsed: _Body, pieces: Pieces) -> Translation:
    turns = [_TURNS.find(content_hash(message), message) for message in parsed.messages]
    messages = [message for turn in turns for message in turn.messages]
    config, tools = (
        parsed.output_config or _OutputConfig(),
        ANTHROPIC_TOOLS.find(content_hash(parsed.tools), parsed.tools),
    )
    choice = tools.restrict(_choice(parsed.tool_choice or {}))
    has_choice = choice is not None or not tools.dropped
    fields: JsonObject = {
        **{name: piece for name, piece in pieces.items() if name not in _TRANSLATED | _NO_PLACE},
        "max_tokens": parsed.max_tokens,
        "stop": parsed.stop_sequences or None,
        "tools": tools.functions or None,
        "tool_choice": choice,
        "parallel_tool_calls": _are_parallel(parsed.tool_choice or {}) if has_choice else None,
        "response_format": wanted.to_chat() if (wanted := config.format or parsed.output_format) else None,
        **_thinking(parsed.thinking or {}, config.effort),
        **continue_last([msgspec.json.decode(message) for message in messages[-1:]]),
    }
    losses = Losses(dict.fromkeys(tools.dropped))
    for turn in turns:
        losses.add(turn.losses)
    thread = parsed.thread or Thread("create")
    return Translation(
        client_fields=pieces,
        system=[{"role": "system", "content": join_content(_parts(parsed.system))}] if parsed.system else [],
        messages=messages,
        fields=fields,
        losses=losses,
        not_sampling=_NOT_SAMPLING,
        shaping=_SHAPING,
        continues=(thread.previous_message_id or "") if thread.type == "continue" else None,
    )


def _read_turn(_: str, text: msgspec.Raw) -> Turn:
    message = _MESSAGE.decode(text)
    losses = Losses(dict.fromkeys(_find_dropped(message)))
    return Turn([encoded(one) for one in _chat_messages(message, losses)], losses)


_MESSAGE: Final = msgspec.json.Decoder(_Message)
_TURNS: Final = TextMemo(_read_turn, MAX_TURN_BYTES, lambda turn: turn.num_bytes)


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


def _chat_messages(message: _Message, losses: Losses) -> Iterator[JsonObject]:
    blocks = objects_in(message.content)
    if message.role == "assistant":
        yield _assistant(blocks, losses)
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


def _assistant(blocks: list[JsonObject], losses: Losses) -> JsonObject:
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
                losses.refused[f"messages.{block.get('type')}"] = (
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


def _write_input(value: object) -> str:
    """Return arguments as JSON text; those of a stream are the text that the model wrote."""
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    return json.dumps({} if value is None else value, ensure_ascii=False)


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None

    def count(self) -> Usage:
        """Return it with the cached tokens of the prompt among its tokens, as others count."""
        cached = (self.cache_read_input_tokens or 0) + (self.cache_creation_input_tokens or 0)
        prompt = None if self.input_tokens is None else self.input_tokens + cached
        return Usage(
            prompt_tokens=prompt, response_tokens=self.output_tokens, cached_tokens=self.cache_read_input_tokens
        )


class _Error(msgspec.Struct):
    message: str = "it failed"


class _Answer(msgspec.Struct):
    content: list[JsonObject] = []
    model: str | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None
    error: _Error | None = None


class _Delta(msgspec.Struct):
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    message: _Answer | None = None
    index: int = 0
    content_block: JsonObject | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: _Error | None = None


_GROWING: Final = ("text", "thinking", "signature", "partial_json")


def read_message(body: bytes) -> Answer:
    """Read a whole answer.

    Raises: msgspec.DecodeError: it is none.
    """
    return _find_answer(read_as(body, _Answer))


def join_message(events: Iterable[str], unread: list[str]) -> Answer:
    """Join the events of an answer, see ``read_events``."""
    blocks, grown = dict[int, JsonObject](), defaultdict[tuple[int, str], list[str]](list)
    whole, usage = _Answer(), dict[str, int]()
    for event in read_events(events, _Event, unread):
        whole.model = whole.model or (event.message and event.message.model)
        whole.error = event.error or whole.error
        for counted in (event.message and event.message.usage, event.usage):
            usage |= {name: one for name, one in msgspec.structs.asdict(counted or _Usage()).items() if one is not None}
        if event.content_block is not None:
            blocks[event.index] = event.content_block
        if event.delta is not None:
            whole.stop_reason = event.delta.stop_reason or whole.stop_reason
            for name in _GROWING:
                if piece := getattr(event.delta, name):
                    grown[event.index, name].append(piece)
    for (index, name), texts in grown.items():
        block, text = blocks.get(index, {}), "".join(texts)
        text = msgspec.Raw(text.encode()) if name == "partial_json" else str(block.get(name) or "") + text
        blocks[index] = block | {"input" if name == "partial_json" else name: text}
    whole.content = [block for _, block in sorted(blocks.items())]
    whole.usage = _Usage(**usage) if usage else None
    return _find_answer(whole)


def _find_answer(whole: _Answer) -> Answer:
    losses = Losses()
    reason = "stop" if whole.stop_reason == "stop_sequence" else find_reason("stop_reason", whole.stop_reason)
    is_empty = not whole.content and reason is None
    return Answer(
        actions=[] if is_empty else [join_answer([_assistant(whole.content, losses)], reason)],
        losses=losses,
        model=whole.model,
        usage=whole.usage and whole.usage.count(),
        failure=whole.error and whole.error.message,
        is_complete=reason is not None,
    )
