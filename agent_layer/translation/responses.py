"""OpenAI's responses API in the words of chat completions.

One answer has several items (reasoning, message, function calls); together they are one assistant message.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import UNREADABLE, JsonObject, Usage, content_hash
from agent_layer.translation.answer import Answer, read_as, read_events
from agent_layer.translation.finishes import find_reason
from agent_layer.translation.memo import TextMemo
from agent_layer.translation.request import MAX_TURN_BYTES, Losses, Pieces, Translation, Turn, encoded, read_pieces
from agent_layer.translation.sealed import open_reasoning
from agent_layer.translation.tools import OPENAI_TOOLS, Tool, ToolSet, choose_tool, join_name, write_custom_input
from agent_layer.translation.turns import (
    Format,
    assistant_message,
    image_part,
    join_answer,
    join_content,
    objects_in,
    text_part,
    tool_call,
)


def _to_messages(items: Iterable[JsonObject], losses: Losses) -> list[JsonObject]:
    """Return the chat messages that these items stand for; one of OpenAI's own servers stays as it is."""
    turns = _Turns(losses)
    for item in items:
        turns.take(item)
    turns.close()
    return turns.messages


@dataclass(slots=True)
class _Turns:
    losses: Losses
    messages: list[JsonObject] = field(default_factory=list[JsonObject])
    _thoughts: list[str] = field(default_factory=list[str])
    _texts: list[str] | None = None
    _calls: list[JsonObject] = field(default_factory=list[JsonObject])

    def take(self, item: JsonObject) -> None:
        match item:
            case {"type": "reasoning"}:
                if self._texts is not None or self._calls:
                    self.close()
                self._thoughts += _read_thoughts(item)
            case {"type": "function_call", "call_id": str(), "name": str(), "arguments": str(arguments)}:
                self._calls.append(_read_call(item, arguments))
            case {"type": "custom_tool_call", "call_id": str(), "name": str(), "input": str(text)}:
                self._calls.append(_read_call(item, write_custom_input(text)))
            case {
                "type": "function_call_output" | "custom_tool_call_output",
                "call_id": str(call_id),
                "output": output,
            }:
                self._add({"role": "tool", "tool_call_id": call_id, "content": join_content(_parts(output))})
            case {"role": "assistant", "content": content}:
                self._begin_text(content)
            case {"role": str(role), "content": content}:
                self._add({"role": role, "content": join_content(_parts(content))})
            case _:
                self._take_other(item)

    def _begin_text(self, content: object) -> None:  # kept: as a case of its own the caller would be too long
        if self._texts is not None or self._calls:
            self.close()
        self._texts = [str(part.get("text") or part.get("refusal") or "") for part in objects_in(content)]

    def _take_other(self, item: JsonObject) -> None:
        """Let a summary stand as words of the user: many templates know a system message at the beginning only."""
        kind = item.get("type")
        if not _is_summary(item):
            self.losses.refused[f"items.{kind}"] = (
                f"responses request: expected items of type message, reasoning, function_call or"
                f" function_call_output, found {kind!r}; only OpenAI's own servers know it"
            )
            self._add(item)
            return
        if (summary := open_reasoning(item.get("encrypted_content"))) is None:
            self.losses.refused[f"items.{kind}"] = (
                "responses request: expected a compaction of this gateway's POST /v1/responses/compact, found one of"
                " another party, which nothing here can read; send the conversation itself"
            )
        self._add({"role": "user", "content": f"{_SUMMARY}\n\n{summary or ''}"})

    def close(self) -> None:
        """End the assistant's turn, if it is one."""
        if self._thoughts or self._texts is not None or self._calls:
            self.messages.append(assistant_message(self._texts or [], self._thoughts, self._calls))
        self._thoughts, self._texts, self._calls = [], None, []

    def _add(self, message: JsonObject) -> None:
        self.close()
        self.messages.append(message)


def _is_summary(item: JsonObject) -> bool:
    """Whether an item is what ``/v1/responses/compact`` makes of a conversation."""
    return item.get("type") in ("compaction", "compaction_summary")


_SUMMARY: Final = "What came before is left out. This is your own summary of it:"


def _read_call(item: JsonObject, arguments: str) -> JsonObject:
    return tool_call(str(item["call_id"]), join_name(str(item["name"]), item.get("namespace")), arguments)


def _read_thoughts(item: JsonObject) -> list[str]:
    """Return what a reasoning item holds: its text, else what was sealed of it, else its summary."""
    sealed = open_reasoning(item.get("encrypted_content"))
    if not item.get("content") and sealed is not None:
        return [sealed]
    return [str(part.get("text", "")) for part in objects_in(item.get("content")) or objects_in(item.get("summary"))]


def _find_dropped(items: Iterable[JsonObject]) -> Iterator[str]:
    """Yield the names of what no chat message can carry."""
    for item in items:
        if item.get("encrypted_content") and not _is_summary(item) and not any(_read_thoughts(item)):
            yield "encrypted_content"


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


class _Text(msgspec.Struct):
    format: Format | None = None
    verbosity: str | None = None


class _Repeated(msgspec.Struct):
    """What a conversation repeats, read only to find what is wrong with it."""

    input: str | list[JsonObject] = []
    tools: list[Tool] | None = None


class _Body(msgspec.Struct):
    input: msgspec.Raw = msgspec.Raw(b"[]")
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: msgspec.Raw = msgspec.Raw(b"null")
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


def translate_responses(body: bytes, resolve_item: ResolveItem | None = None) -> Translation:
    """Translate a client's body.

    Args:
        body: JSON text.
        resolve_item: finds the item that an ``item_reference`` names.

    Raises: BadInputError: it is no such request, or a function has no name.
    """
    try:
        try:
            return _translate(_BODY.decode(body), read_pieces(body), resolve_item)
        except UNREADABLE:
            msgspec.json.decode(body, type=_Repeated)  # whose error says where
            raise
    except UNREADABLE as error:
        raise BadInputError(
            f"responses request: expected a body of OpenAI's responses API, found {error}; see its reference"
        ) from error


def _translate(parsed: _Body, pieces: Pieces, resolve_item: ResolveItem | None) -> Translation:
    losses = Losses()
    for name in _UNSUPPORTED:
        if getattr(parsed, name):
            losses.refused[name] = f"responses request: expected no {name}, which the gateway cannot do; leave it out"
    turns = [_TURNS.find(*turn) for turn in _cut_turns(parsed.input, resolve_item)]
    tools = OPENAI_TOOLS.find(content_hash(parsed.tools), parsed.tools)
    losses.names |= dict.fromkeys(tools.dropped)
    for turn in turns:
        losses.add(turn.losses)
    return Translation(
        client_fields=pieces,
        system=[{"role": "system", "content": parsed.instructions}] if parsed.instructions else [],
        messages=[message for turn in turns for message in turn.messages],
        fields=_fields(parsed, pieces, tools),
        losses=losses,
        not_sampling=_NOT_SAMPLING,
        shaping=_SHAPING,
        continues=parsed.previous_response_id or None,
        shows_logprobs=_SHOW_LOGPROBS in (parsed.include or []),
    )


_Kind: TypeAlias = Literal["reference", "answer", "other"]
"""``answer``: what may be part of one with its neighbours."""


def _read_turn(_: str, items: msgspec.Raw) -> Turn:
    read = msgspec.json.decode(items, type=list[JsonObject])
    losses = Losses(dict.fromkeys(_find_dropped(read)))
    return Turn([encoded(message) for message in _to_messages(read, losses)], losses)


def _read_kind(_: str, item: msgspec.Raw) -> _Kind:
    match _ITEM.decode(item):
        case {"type": "item_reference"}:
            return "reference"
        case {"type": "reasoning" | "function_call" | "custom_tool_call"} | {"role": "assistant"}:
            return "answer"
        case _:
            return "other"


_ITEM: Final = msgspec.json.Decoder(JsonObject)
_TEXT: Final = msgspec.json.Decoder(str)
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_KINDS: Final = TextMemo(_read_kind)
_TURNS: Final = TextMemo(_read_turn, MAX_TURN_BYTES, lambda turn: turn.num_bytes)


def _cut_turns(given: msgspec.Raw, resolve_item: ResolveItem | None) -> Iterator[tuple[str, msgspec.Raw]]:
    """Cut an input where no chat message goes on: behind each item but those of one answer.

    Yields: (name, JSON list of the items).
    """
    text = bytes(given)
    if not text.startswith(b"["):
        text = b"[%b]" % encoded({"role": "user", "content": _TEXT.decode(text)})
    turns, before = list[list[tuple[str, bytes]]](), ""
    for given_item in _ITEMS.decode(text):
        item, name = given_item, content_hash(given_item)
        if (kind := _KINDS.find(name, item)) == "reference" and resolve_item is not None:
            item = encoded(resolve_item(_ITEM.decode(item)))
            name = content_hash(item)
            kind = _KINDS.find(name, item)
        if before != "answer" or kind != "answer":
            turns.append([])
        turns[-1].append((name, bytes(item)))
        before = kind
    for turn in turns:
        names = "".join([name for name, _ in turn])
        yield content_hash(names.encode()), msgspec.Raw(b"[%b]" % b",".join([item for _, item in turn]))


def _fields(parsed: _Body, pieces: Pieces, tools: ToolSet) -> JsonObject:  # kept: a table
    """Everything but the messages."""
    choice = tools.restrict(_choice(parsed.tool_choice))
    text, reasoning = parsed.text or _Text(), parsed.reasoning or {}
    return {
        **{name: piece for name, piece in pieces.items() if name not in _TRANSLATED | _NO_PLACE},
        "max_tokens": parsed.max_output_tokens,
        "tools": tools.functions or None,
        "tool_choice": choice,
        "parallel_tool_calls": pieces.get("parallel_tool_calls") if tools.functions or not tools.dropped else None,
        "response_format": text.format.to_chat() if text.format else None,
        "verbosity": text.verbosity,
        "reasoning_effort": reasoning.get("effort"),
    }


def _choice(choice: str | JsonObject | None) -> object:
    match choice:
        case {"type": "function" | "custom", "name": str(name)}:
            return choose_tool(name, choice.get("namespace"))
        case {"type": "allowed_tools", "tools": tools}:
            allowed = [choose_tool(tool.get("name"), tool.get("namespace")) for tool in objects_in(tools)]
            return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode", "auto"), "tools": allowed}}
        case _:
            return choice


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None

    def count(self) -> Usage:
        """Return it as others count."""
        # the form demands a number, so 0 says as little as none
        cached = (self.input_tokens_details or _InputDetails()).cached_tokens or None
        return Usage(prompt_tokens=self.input_tokens, response_tokens=self.output_tokens, cached_tokens=cached)


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Error(msgspec.Struct):
    message: str = "it failed"


class _Answer(msgspec.Struct):
    output: list[JsonObject] = []
    model: str | None = None
    status: str | None = None
    usage: _Usage | None = None
    error: _Error | None = None
    incomplete_details: _Incomplete | None = None


class _Event(msgspec.Struct):
    type: str = ""
    response: _Answer | None = None
    output_index: int = 0
    item: JsonObject | None = None
    delta: object = None


_GROWING: Final = {
    "output_text": ("message", "content"),
    "refusal": ("message", "content"),
    "reasoning_text": ("reasoning", "content"),
    "reasoning_summary_text": ("reasoning", "summary"),
    "function_call_arguments": ("function_call", "arguments"),
    "custom_tool_call_input": ("custom_tool_call", "input"),
}
"""What events add to: the type of the item, and its member."""


def read_response(body: bytes) -> Answer:
    """Read a whole answer.

    Raises: msgspec.DecodeError: it is none.
    """
    return _find_answer(read_as(body, _Answer))


def join_response(events: Iterable[str], unread: list[str]) -> Answer:
    """Join the events of an answer, see ``read_events``: its last event has all of it."""
    items, grown = dict[int, JsonObject](), defaultdict[tuple[int, str], list[str]](list)
    answer = _Answer()
    for event in read_events(events, _Event, unread):
        answer = event.response or answer
        kind, _, change = event.type.removeprefix("response.").partition(".")
        if event.item is not None:
            items[event.output_index] = event.item
        if change == "delta" and kind in _GROWING:
            item_type, name = _GROWING[kind]
            items.setdefault(event.output_index, {"type": item_type, "role": "assistant"})
            grown[event.output_index, name].append(str(event.delta))
        elif event.item is not None and change == "done":
            for name in ("content", "summary", "arguments", "input"):
                grown.pop((event.output_index, name), None)
    for (index, name), texts in grown.items():
        items[index] = items[index] | {name: "".join(texts)}
    if not answer.output:
        answer = msgspec.structs.replace(answer, output=[item for _, item in sorted(items.items())])
    return _find_answer(answer)


def _find_answer(whole: _Answer) -> Answer:
    losses, reason = Losses(), whole.incomplete_details and find_reason("incomplete", whole.incomplete_details.reason)
    reason = reason or ("stop" if whole.status == "completed" else None)
    is_failed = whole.error is not None or whole.status == "failed"
    is_empty = is_failed or (not whole.output and reason is None)
    return Answer(
        actions=[] if is_empty else [join_answer(_to_messages(whole.output, losses), reason)],
        losses=losses,
        model=whole.model,
        usage=whole.usage and whole.usage.count(),
        failure=(whole.error or _Error()).message if is_failed else None,
        is_complete=reason is not None,
    )
