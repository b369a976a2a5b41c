"""What a rollout's model answered, as its agent sends it back: recognised, and given to the engine as it was sampled.

Agents parse the arguments of tool calls and write them again, number calls from 0 in each turn, mint ids of their own,
and drop reasoning. So an answer is known by what it says, never by an id alone: by its text and its calls, whatever
the spelling of their arguments, at its place behind the messages that it answered. The first such answer is taken each
time, so that a conversation that once went on from it does so in all later turns. What an agent says otherwise is its
own, and stays as it is.
"""

import json
import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Literal, TypeAlias, cast

import msgspec

from agent_layer.gateway.dialects.base import LRUCache
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.rollouts.media import Part, stored_part
from agent_layer.schema import JsonObject, as_json_object, as_json_objects, content_hash
from agent_layer.translation import read_custom_input, write_custom_input

Form: TypeAlias = Literal["same", "reserialised", "unreasoned", "unknown"]
REASONING: Final = ("reasoning", "reasoning_content")
"""Names of the member in which engines and agents put what was thought."""
_MAX_COMPARED: Final = 1 << 20
"""Letters of arguments. Longer ones are taken as written, because to parse them could stall the process."""
_MAX_RESOLVED: Final = 20_000
_ANY_IDS: Final = 0
_NO_CALLS: Final = hash(())
ANSWERER: Final = "assistant"


class Returned(msgspec.Struct, frozen=True):
    """An assistant message in a request's history."""

    index: int
    form: Form
    """``same``: as the model wrote it in this rollout. ``reserialised``: with arguments in another spelling.
    ``unreasoned``: without its reasoning. ``unknown``: it never wrote this."""
    stood_at: int | None = None
    """Number of messages before it when the model wrote it."""


class HashedAnswer(msgspec.Struct, frozen=True):
    """An assistant message, by hashes."""

    index: int
    exact: int
    """Hash of the text, and of the tool calls as they are written."""
    meaning: int
    """Hash of the text, and of the tool calls, however their arguments are written."""
    shown: frozenset[int]
    """Such hashes of all that a dialect may show of the calls: arguments that are no JSON object as an empty one; the
    text that a custom tool takes, for which the arguments stand where they are something else."""
    ids: int
    """Hash of the ids of the tool calls."""
    reasoning: int | None
    """Hash of what was thought; None: nothing."""


class _Answer(msgspec.Struct, frozen=True):
    """What the model wrote once."""

    call_id: str
    hashed: HashedAnswer


class _Written(msgspec.Struct, array_like=True):
    """The parts of an answer that come back otherwise."""

    calls: list[JsonObject] = []
    reasoning: tuple[str, str] | None = None
    """Name of its member, and its text."""


class _Rewritten(msgspec.Struct, frozen=True):
    """An assistant message as the model wrote it."""

    message: msgspec.Raw
    new_ids: tuple[tuple[str, str], ...] = ()
    """(the agent's, the model's) of each of its tool calls, where they differ."""
    changed: list[str] = []
    """See ``ChatRequest.restored``."""


class Restored(msgspec.Struct, frozen=True):
    """A request whose earlier answers are as they were sampled."""

    request: ChatRequest
    parts: list[Part]
    """Its messages in their stored form."""


def hash_answer(index: int, message: JsonObject) -> HashedAnswer:
    """Hash the assistant message that stands here in a history."""
    text, calls = _read_text(message), _list_calls(message)
    meant = [_canonical(arguments) for _, _, arguments in calls]
    shown = [_list_shown(arguments, *one) for (_, _, arguments), one in zip(calls, meant, strict=True)]
    names, thought = [name for _, name, _ in calls], _read_reasoning(message)
    return HashedAnswer(
        index,
        exact=hash((text, *[(name, arguments) for _, name, arguments in calls])),
        meaning=hash((text, *zip(names, [text for text, _ in meant], strict=True))),
        shown=frozenset(hash((text, *zip(names, meanings, strict=True))) for meanings in zip(*shown, strict=True))
        or frozenset([hash((text,))]),
        ids=hash(tuple(str(call.get("id")) for call in as_json_objects(message.get("tool_calls")))),
        reasoning=hash(thought[1]) if thought else None,
    )


@dataclass(slots=True)
class AnsweredMessages:
    """Messages that a rollout's model wrote: hashes of all, and the texts as far as the memory holds them."""

    memory: LRUCache = field(default_factory=LRUCache)
    _answers: list[tuple[str, _Answer]] = field(default_factory=list[tuple[str, _Answer]])
    """(place, answer), in order of their end."""
    _here: dict[tuple[str, str, int], list[_Answer]] = field(default_factory=dict[tuple[str, str, int], list[_Answer]])
    """Answers by place and a hash of what was meant."""
    _anywhere: dict[tuple[str, int, int], _Answer] = field(default_factory=dict[tuple[str, int, int], _Answer])
    """First answer by a hash of it, and of its ids."""
    _whole: set[tuple[int, int | None]] = field(default_factory=set[tuple[int, int | None]])
    """Hashes of texts with calls as written, and of their reasoning."""
    _stood_at: dict[int, int] = field(default_factory=dict[int, int])
    """Number of messages before the last answer of this meaning."""
    _resolved: dict[tuple[str, str], _Answer | None] = field(default_factory=dict[tuple[str, str], _Answer | None])
    """What was found before for the message of this hash at a place."""
    _longest: dict[str, int] = field(default_factory=dict[str, int])
    """Largest number of messages, by conversation."""

    def add(self, message: JsonObject, conversation: str, num_messages: int, place: str, call_id: str = "") -> None:
        """Remember an answer.

        Args:
            message: as the engine wrote it.
            conversation: of the call.
            num_messages: that were asked.
            place: of the answer, see ``find_place``.
            call_id: of the call.
        """
        answer = _Answer(call_id, hash_answer(num_messages, message))
        self._answers.append((place, answer))
        self._index(place, answer)
        self._longest[conversation] = max(num_messages, self._longest.get(conversation, 0))
        written = _Written(as_json_objects(message.get("tool_calls")), _read_reasoning(message))
        if written.calls or written.reasoning:
            self.memory.keep(_name_text(answer), msgspec.json.encode(written))

    def abandon(self, call_ids: Collection[str]) -> None:
        """Forget the answers of these calls: their agent goes on from before them."""
        kept = [(place, answer) for place, answer in self._answers if answer.call_id not in call_ids]
        self._answers.clear()
        for table in (self._here, self._anywhere, self._whole, self._stood_at, self._resolved):
            table.clear()
        for place, answer in kept:
            self._answers.append((place, answer))
            self._index(place, answer)

    def _index(self, place: str, answer: _Answer) -> None:
        hashed = answer.hashed
        self._whole.add((hashed.exact, hashed.reasoning))
        self._stood_at[hashed.meaning] = hashed.index
        names = [("meaning", hashed.meaning), *(("shown", value) for value in hashed.shown)]
        for kind, meaning in names:
            self._here.setdefault((place, kind, meaning), []).append(answer)
        for kind, value in (("exact", hashed.exact), *names):
            self._anywhere.setdefault((kind, value, hashed.ids), answer)
            self._anywhere.setdefault((kind, value, _ANY_IDS), answer)

    def recognise(self, answer: HashedAnswer) -> Returned:
        """Return whether the model wrote an assistant message of a history, and where that stood."""
        exact = self._anywhere.get(("exact", answer.exact, _ANY_IDS))
        found = exact or self._anywhere.get(("meaning", answer.meaning, _ANY_IDS))
        if found is None:
            return Returned(answer.index, "unknown")
        stood_at = self._stood_at[answer.meaning]
        if (answer.exact, answer.reasoning) in self._whole:
            return Returned(answer.index, "same", stood_at)
        if answer.reasoning is None and found.hashed.reasoning is not None:
            return Returned(answer.index, "unreasoned", stood_at)
        return Returned(answer.index, "unknown" if exact else "reserialised", stood_at)

    def longest(self, conversation: str) -> int:
        """Messages of the longest request that was answered in a conversation."""
        return self._longest.get(conversation, 0)

    def restore(self, request: ChatRequest, *, with_reasoning: bool = False) -> Restored:
        """Return a request with the model's answers as they were sampled.

        Args:
            request: what the agent asks.
            with_reasoning: reasoning that the agent dropped is put back.
        """
        digest, parts, messages = blake2b(digest_size=16), list[Part](), list[msgspec.Raw]()
        changed, new_ids, surroundings = dict[str, None](), list[tuple[str, str]](), hash_surroundings(request)
        for index, (message, role) in enumerate(zip(request.messages, request.roles, strict=True)):
            now = message
            if role == ANSWERER:
                place = name_place(digest.hexdigest(), surroundings)
                rewritten = self._rewrite(request, index, place, with_reasoning=with_reasoning)
                now, new_ids = rewritten.message, list(rewritten.new_ids)
                changed |= dict.fromkeys(rewritten.changed)
            elif role == "tool" and new_ids:
                now = _rename_result(request.message(index), new_ids) or message
            parts.append(stored_part(bytes(now)))
            digest.update(parts[-1].hash.encode())
            messages.append(now)
        if all(now is message for now, message in zip(messages, request.messages, strict=True)):
            return Restored(request, parts)
        pieces = request.pieces | {"messages": msgspec.Raw(msgspec.json.encode(messages))}
        return Restored(msgspec.structs.replace(request, pieces=pieces, messages=messages, restored=[*changed]), parts)

    def _find(self, request: ChatRequest, index: int, place: str) -> _Answer | None:
        """Return the answer that an assistant message repeats; None: it is the agent's own, or it is as it was."""
        key = place, content_hash(request.messages[index])
        if key in self._resolved:
            return self._resolved[key]
        hashed = hash_answer(index, request.message(index))
        kind = "shown" if request.is_respelled else "meaning"
        found = self._find_here(hashed, place, kind)
        if hashed.ids != _NO_CALLS:  # others may say the same text, as an example of a prompt does
            found = found or self._anywhere.get(("exact", hashed.exact, hashed.ids))
            found = found or self._anywhere.get((kind, hashed.meaning, hashed.ids))
        if found is not None and _are_same(found.hashed, hashed):
            found = None
        if len(self._resolved) >= _MAX_RESOLVED:
            self._resolved.clear()
        self._resolved[key] = found
        return found

    def _find_here(  # kept: it holds what likeness is
        self, hashed: HashedAnswer, place: str, kind: str
    ) -> _Answer | None:
        here = self._here.get((place, kind, hashed.meaning), ())

        def likeness(answer: _Answer) -> tuple[bool, bool, bool]:
            other = answer.hashed
            is_thought = hashed.reasoning is not None and hashed.reasoning == other.reasoning
            return hashed.ids == other.ids, is_thought, hashed.exact == other.exact

        return max(here, key=likeness, default=None)  # of several that are as like, the first

    def _rewrite(self, request: ChatRequest, index: int, place: str, *, with_reasoning: bool) -> _Rewritten:
        """Return an assistant message as the model wrote it, or as it is where it did not."""
        same = request.messages[index]
        answer = self._find(request, index, place)
        text = None if answer is None else self.memory.find(_name_text(answer))
        if text is None:
            return _Rewritten(same)
        message, written, changed = request.message(index), _WRITTEN.decode(text), list[str]()
        given, now, new_ids = as_json_objects(message.get("tool_calls")), dict(message), tuple[tuple[str, str], ...]()
        if given and len(given) == len(written.calls):
            now["tool_calls"] = calls = [_as_written(*pair) for pair in zip(given, written.calls, strict=True)]
            ids = zip(_list_calls(message), _list_calls(now), strict=True)
            new_ids = tuple((old_id, new_id) for (old_id, _, _), (new_id, _, _) in ids)
            is_renamed = any(old_id != new_id for old_id, new_id in new_ids)
            new_ids = new_ids if is_renamed else ()
            changed += ["tool_calls"] if is_renamed or (calls != given and not request.is_respelled) else []
        if with_reasoning and written.reasoning and _read_reasoning(message) is None:
            now |= dict([written.reasoning])
            changed.append("reasoning")
        return _Rewritten(same if now == message else msgspec.Raw(msgspec.json.encode(now)), new_ids, changed)


def join_prefill(request: ChatRequest, message: JsonObject) -> JsonObject:
    """Return an answer together with the beginning that its request gave it."""
    if not request.is_prefilled or request.sampling.get("echo"):
        return message
    return message | {"content": _read_text(request.message(-1)) + _read_text(message)}


def find_place(request: ChatRequest, messages_hash: str) -> str:
    """Return the name of the place behind these messages: with other tools they are another prompt."""
    return name_place(messages_hash, hash_surroundings(request))


def name_place(messages_hash: str, surroundings: int) -> str:
    """Return the same, of a request whose tools were hashed before."""
    return f"{messages_hash} {surroundings}"


def hash_surroundings(request: ChatRequest) -> int:
    """Hash what a template shows beside the messages. It may be longer than they are."""
    return hash((bytes(request.tools or b""), bytes(request.pieces.get("chat_template_kwargs", b""))))


_WRITTEN: Final = msgspec.json.Decoder(_Written)


def _name_text(answer: _Answer) -> str:
    hashed = answer.hashed
    return f"answer {answer.call_id} {hashed.exact} {hashed.ids} {hashed.reasoning}"


def _are_same(written: HashedAnswer, given: HashedAnswer) -> bool:
    return written.exact == given.exact and written.ids == given.ids and written.reasoning == given.reasoning


def _as_written(given: JsonObject, written: JsonObject) -> JsonObject:
    """Return an agent's tool call with the id and the arguments that the model wrote."""
    function = as_json_object(written.get("function"))
    arguments = {name: function[name] for name in ("arguments",) if function.get(name) is not None}
    own = {name: written[name] for name in ("id",) if isinstance(written.get(name), str)}
    return given | own | {"function": as_json_object(given.get("function")) | arguments}


def _rename_result(message: JsonObject, new_ids: list[tuple[str, str]]) -> msgspec.Raw | None:
    """Return a tool's result under the id of its call; None: it stays as it is. Results without an id come in order."""
    given = _to_text(message.get("tool_call_id"))
    found = next((one for one in new_ids if given in (one[0], "")), None)
    if found is None:
        return None
    new_ids.remove(found)
    return msgspec.Raw(msgspec.json.encode(message | {"tool_call_id": found[1]}))


def _read_text(message: JsonObject) -> str:
    """Text of a message; its text parts are joined, and null is empty."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join([str(part.get("text", "")) for part in as_json_objects(cast("object", content))])
    return (content if isinstance(content, str) else "") + _to_text(message.get("refusal"))


def _read_reasoning(message: JsonObject) -> tuple[str, str] | None:
    """(name of its member, text) of what was thought; None: nothing."""
    return next(((name, str(text)) for name in REASONING if (text := message.get(name))), None)


def _list_calls(message: JsonObject) -> list[tuple[str, str, str]]:
    """(id, name, arguments) of each tool call."""
    calls = as_json_objects(message.get("tool_calls"))
    functions = [as_json_object(call.get("function")) for call in calls]
    return [
        (_to_text(call.get("id")), _to_text(function.get("name")), _to_text(function.get("arguments")))
        for call, function in zip(calls, functions, strict=True)
    ]


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _canonical(arguments: str) -> tuple[str, bool]:
    """One text for all JSON texts that mean the same to programs: in any order, with numbers as JavaScript has them.

    Returns: the text, and whether it is a JSON object.
    """
    if len(arguments) > _MAX_COMPARED:
        return arguments, True
    try:
        value: object = json.loads(arguments, parse_int=_read_number, parse_float=_read_number, parse_constant=str)
    except (ValueError, RecursionError):
        return arguments, False
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return _LONE_SURROGATE.sub("\ufffd", text), isinstance(value, dict)


def _list_shown(arguments: str, meaning: str, is_object: bool) -> tuple[str, str, str]:  # noqa: FBT001  # of _canonical
    """What dialects may show of arguments: all of them, parsed ones, and the text of a custom tool."""
    taken, _ = _canonical(write_custom_input(read_custom_input(arguments)))
    return meaning, meaning if is_object else "{}", taken


_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""Clients that are given one put U+FFFD in its place, as requests do here."""


def _read_number(text: str) -> float | None:
    number = float(text)
    return number + 0.0 if math.isfinite(number) else None  # -0.0 is 0
