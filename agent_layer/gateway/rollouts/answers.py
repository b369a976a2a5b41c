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
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Literal, TypeAlias, cast

import msgspec

from agent_layer.gateway.dialects.base import LRUCache
from agent_layer.gateway.dialects.chat import ChatRequest, MessageFacts, find_facts
from agent_layer.gateway.rollouts.media import name_stored
from agent_layer.schema import JsonObject, as_json_object, as_json_objects
from agent_layer.translation import read_custom_input, write_custom_input

Form: TypeAlias = Literal["same", "reserialised", "unreasoned", "unknown"]
REASONING: Final = ("reasoning", "reasoning_content")
"""Names of the member in which engines and agents put what was thought."""
_MAX_COMPARED: Final = 1 << 20
"""Letters of arguments. Longer ones are taken as written, because to parse them could stall the process."""
_MAX_REMEMBERED: Final = 1 << 12
"""Letters of arguments whose meaning is remembered."""
_MAX_REWRITTEN_BYTES: Final = 8 << 20
_ENTRY_BYTES: Final = 400
"""What a rewritten message takes beside its text."""
_MAX_HASHED: Final = 10_000
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
    """An agent's message as the model wrote it, or a tool's result under the id that the model gave its call."""

    message: msgspec.Raw
    facts: MessageFacts
    new_ids: tuple[tuple[str, str], ...] = ()
    """(the agent's, the model's) of each of its tool calls, where they differ; of a result, that of its call."""
    changed: tuple[str, ...] = ()
    """See ``ChatRequest.restored``."""


class Restored(msgspec.Struct, frozen=True):
    """A request whose earlier answers are as they were sampled."""

    request: ChatRequest
    hashes: list[str]
    """[num_messages], content hash of the stored form of each."""


def hash_answer(index: int, message: JsonObject) -> HashedAnswer:
    """Hash the assistant message that stands here in a history."""
    text, calls = _read_text(message), _list_calls(message)
    thought = _read_reasoning(message)
    if not calls:
        text_hash, reasoning = hash((text,)), hash(thought[1]) if thought else None
        return HashedAnswer(index, text_hash, text_hash, frozenset([text_hash]), _NO_CALLS, reasoning)
    shown, names = [_list_shown(arguments) for _, _, arguments in calls], [name for _, name, _ in calls]
    return HashedAnswer(
        index,
        exact=hash((text, *[(name, arguments) for _, name, arguments in calls])),
        meaning=hash((text, *zip(names, [meaning for meaning, _, _ in shown], strict=True))),
        shown=frozenset(hash((text, *zip(names, meanings, strict=True))) for meanings in zip(*shown, strict=True)),
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
    _rewritten: dict[tuple[object, ...], tuple[_Rewritten | None]] = field(
        default_factory=dict[tuple[object, ...], tuple[_Rewritten | None]]
    )
    """What became of messages before, by place and content hash; None: they stayed."""
    _num_rewritten_bytes: int = 0
    _hashed: dict[str, HashedAnswer] = field(default_factory=dict[str, HashedAnswer])
    """Assistant messages that were hashed before, by content hash."""
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
        hashed = hash_answer(num_messages, message)
        answer = _Answer(call_id, hashed)
        self._answers.append((place, answer))
        self._index(place, answer)
        self._longest[conversation] = max(num_messages, self._longest.get(conversation, 0))
        if hashed.ids != _NO_CALLS or hashed.reasoning is not None:
            written = _Written(as_json_objects(message.get("tool_calls")), _read_reasoning(message))
            self.memory.keep(_name_text(answer), msgspec.json.encode(written))

    def abandon(self, call_ids: Collection[str]) -> None:
        """Forget the answers of these calls: their agent goes on from before them."""
        kept = [(place, answer) for place, answer in self._answers if answer.call_id not in call_ids]
        self._answers.clear()
        for table in (self._here, self._anywhere, self._whole, self._stood_at, self._rewritten):
            table.clear()
        self._num_rewritten_bytes = 0
        for place, answer in kept:
            self._answers.append((place, answer))
            self._index(place, answer)

    def _index(self, place: str, answer: _Answer) -> None:
        hashed = answer.hashed
        self._whole.add((hashed.exact, hashed.reasoning))
        self._stood_at[hashed.meaning] = hashed.index
        exact, *names = ("exact", hashed.exact), ("meaning", hashed.meaning), *[("shown", one) for one in hashed.shown]
        for kind, meaning in names:
            self._here.setdefault((place, kind, meaning), []).append(answer)
        for kind, value in (exact, names[0]):
            self._anywhere.setdefault((kind, value, _ANY_IDS), answer)
        if hashed.ids != _NO_CALLS:  # elsewhere a text alone is not restored
            for kind, value in (exact, *names):
                self._anywhere.setdefault((kind, value, hashed.ids), answer)

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

    def hash_answer(self, request: ChatRequest, index: int) -> HashedAnswer:
        """Hash an assistant message of a history, each text once."""
        name = request.facts[index].hash
        if (known := self._hashed.get(name)) is None:
            if len(self._hashed) >= _MAX_HASHED:
                self._hashed.clear()
            known = self._hashed[name] = hash_answer(index, request.message(index))
        return known if known.index == index else msgspec.structs.replace(known, index=index)

    def longest(self, conversation: str) -> int:
        """Messages of the longest request that was answered in a conversation."""
        return self._longest.get(conversation, 0)

    def restore(self, request: ChatRequest, *, with_reasoning: bool = False) -> Restored:
        """Return a request with the model's answers as they were sampled.

        Args:
            request: what the agent asks.
            with_reasoning: reasoning that the agent dropped is put back.
        """
        if not self._answers or ANSWERER not in request.roles:
            texts = zip(request.facts, request.messages, strict=True)
            return Restored(request, [name_stored(found, message) for found, message in texts])
        surroundings, digest, num_hashed = hash_surroundings(request), blake2b(digest_size=16), 0
        facts, messages, hashes, changed = list(request.facts), list(request.messages), list[str](), list[str]()
        new_ids = list[tuple[str, str]]()
        for index, found in enumerate(request.facts):
            rewritten: _Rewritten | None = None
            if found.role == ANSWERER:
                digest.update("".join(hashes[num_hashed:]).encode())
                num_hashed, place = index, name_place(digest.hexdigest(), surroundings)
                rewritten = self._rewrite(request, index, place, with_reasoning=with_reasoning)
                new_ids = list(rewritten.new_ids) if rewritten else []
            elif found.role == "tool" and new_ids:
                rewritten = self._rename_result(request, index, new_ids)
            if rewritten:
                facts[index], messages[index] = rewritten.facts, rewritten.message
                changed += rewritten.changed
            hashes.append(name_stored(facts[index], messages[index]))
        if facts == request.facts:
            return Restored(request, hashes)
        restored = request.with_messages(messages, facts)
        return Restored(msgspec.structs.replace(restored, restored=list(dict.fromkeys(changed))), hashes)

    def _keep(self, key: tuple[object, ...], made: _Rewritten | None) -> tuple[_Rewritten | None]:
        if self._num_rewritten_bytes > _MAX_REWRITTEN_BYTES:
            self._rewritten.clear()
            self._num_rewritten_bytes = 0
        self._num_rewritten_bytes += _ENTRY_BYTES + (memoryview(made.message).nbytes if made else 0)
        kept = self._rewritten[key] = (made,)
        return kept

    def _find(self, request: ChatRequest, index: int, place: str) -> _Answer | None:
        """Return the answer that an assistant message repeats; None: it is the agent's own, or it is as it was."""
        hashed = self.hash_answer(request, index)
        kind = "shown" if request.is_respelled else "meaning"
        found = self._find_here(hashed, place, kind)
        if hashed.ids != _NO_CALLS:  # others may say the same text, as an example of a prompt does
            found = found or self._anywhere.get(("exact", hashed.exact, hashed.ids))
            found = found or self._anywhere.get((kind, hashed.meaning, hashed.ids))
        return None if found is not None and _are_same(found.hashed, hashed) else found

    def _find_here(  # kept: it holds what likeness is
        self, hashed: HashedAnswer, place: str, kind: str
    ) -> _Answer | None:
        here = self._here.get((place, kind, hashed.meaning), ())

        def likeness(answer: _Answer) -> tuple[bool, bool, bool]:
            other = answer.hashed
            is_thought = hashed.reasoning is not None and hashed.reasoning == other.reasoning
            return hashed.ids == other.ids, is_thought, hashed.exact == other.exact

        return max(here, key=likeness, default=None)  # of several that are as like, the first

    def _rewrite(self, request: ChatRequest, index: int, place: str, *, with_reasoning: bool) -> _Rewritten | None:
        """Return an assistant message as the model wrote it; None: it did not, or it is the same."""
        key = place, request.facts[index].hash, request.is_respelled, with_reasoning
        if (known := self._rewritten.get(key)) is not None:
            return known[0]
        answer = self._find(request, index, place)
        text = None if answer is None else self.memory.find(_name_text(answer))
        if text is None:
            return self._keep(key, None)[0]
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
        return self._keep(key, None if now == message else _encode(now, new_ids, changed))[0]

    def _rename_result(self, request: ChatRequest, index: int, new_ids: list[tuple[str, str]]) -> _Rewritten | None:
        """Return a tool's result under the id of its call, which is taken off the list; None: it stays as it is.

        Results without an id come in order.
        """
        key = request.facts[index].hash, *new_ids
        if (known := self._rewritten.get(key)) is None:
            message = request.message(index)
            given = _to_text(message.get("tool_call_id"))
            found = next((one for one in new_ids if given in (one[0], "")), None)
            renamed = None if found is None else _encode(message | {"tool_call_id": found[1]}, (found,), ())
            known = self._keep(key, renamed)
        if known[0]:
            new_ids.remove(known[0].new_ids[0])
        return known[0]


def _encode(message: JsonObject, new_ids: tuple[tuple[str, str], ...], changed: Sequence[str]) -> _Rewritten:
    text = msgspec.Raw(msgspec.json.encode(message))
    return _Rewritten(text, find_facts(text), new_ids, tuple(changed))


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
    tools = request.tool_facts and request.tool_facts.hash
    return hash((tools, bytes(request.pieces.get("chat_template_kwargs", b""))))


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


def _read_text(message: JsonObject) -> str:
    """Text of a message; its text parts are joined, and null is empty."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join([str(part.get("text", "")) for part in as_json_objects(cast("object", content))])
    return (content if isinstance(content, str) else "") + _to_text(message.get("refusal"))


def _read_reasoning(message: JsonObject) -> tuple[str, str] | None:
    """(name of its member, text) of what was thought; None: nothing."""
    for name in REASONING:
        if text := message.get(name):
            return name, str(text)
    return None


def _list_calls(message: JsonObject) -> list[tuple[str, str, str]]:
    """(id, name, arguments) of each tool call."""
    if not (calls := as_json_objects(message.get("tool_calls"))):
        return []
    functions = [as_json_object(call.get("function")) for call in calls]
    return [
        (_to_text(call.get("id")), _to_text(function.get("name")), _to_text(function.get("arguments")))
        for call, function in zip(calls, functions, strict=True)
    ]


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _read_number(text: str) -> float | None:
    number = float(text)
    return number + 0.0 if math.isfinite(number) else None  # -0.0 is 0


_READER: Final = json.JSONDecoder(parse_int=_read_number, parse_float=_read_number, parse_constant=str)
_WRITER: Final = json.JSONEncoder(sort_keys=True, ensure_ascii=False)
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""Clients that are given one put U+FFFD in its place, as requests do here."""


def _list_shown(arguments: str) -> tuple[str, str, str]:
    """What dialects may show of arguments: all of them, parsed ones, and the text of a custom tool.

    Each is one text for all JSON texts that mean the same to programs: in any order, with numbers as JavaScript has
    them.
    """
    if len(arguments) > _MAX_COMPARED:
        return arguments, arguments, write_custom_input(read_custom_input(arguments))
    return _list_short(arguments) if len(arguments) <= _MAX_REMEMBERED else _list_short.__wrapped__(arguments)


@lru_cache(256)  # an answer comes back in the request behind it
def _list_short(arguments: str) -> tuple[str, str, str]:
    try:
        value: object = _READER.decode(arguments)
    except (ValueError, RecursionError):
        value, meaning = None, arguments
    else:
        meaning = _canonical(value)
    fields = as_json_object(value)
    taken = read_custom_input(arguments) if isinstance(fields.get("input"), str) else arguments
    return meaning, meaning if isinstance(value, dict) else "{}", _canonical({"input": taken})


def _canonical(value: object) -> str:
    return _LONE_SURROGATE.sub("\ufffd", _WRITER.encode(value))
