"""Diagnosis of a prompt that does not continue the tokens of an earlier call, though it should.

Whether it does is known from the tokens alone. Only where they break are the answers in its history compared: is each
what the model wrote, and does it stand where it stood?
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, cast

import msgspec

from agent_layer.schema import UNREADABLE, JsonObject, as_json_object, as_json_objects

BreakCause: TypeAlias = Literal["template", "reserialised_tool_call", "edited_history", "compaction"]
"""``template``: the messages are the same, but the chat template writes them otherwise. ``reserialised_tool_call``: the
arguments of a tool call say the same in another JSON text. ``edited_history``: a message was changed, put in or taken
out. ``compaction``: the history became shorter, as when a summary takes its place."""

Form: TypeAlias = Literal["same", "reserialised", "unknown"]


class Returned(msgspec.Struct, frozen=True):
    """An assistant message in a request's history."""

    index: int
    form: Form
    """``same``: as the model wrote it in this rollout. ``unknown``: it never wrote this."""
    stood_at: int | None = None
    """Number of messages before it when the model wrote it."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request's messages."""

    answers: Sequence[Returned]
    """Answers in order."""
    num_messages: int
    num_equal: int = 0
    """Messages at the beginning that were asked just so before; 0: none."""
    num_continued: int = -1
    """Messages that were asked in the call whose tokens this prompt continues; -1: it continues none."""
    longest: int = 0
    """Messages of the longest request in the conversation that it begins with."""


def cause_of_break(seen: History) -> BreakCause | None:
    """Why the prompt does not continue the last answer in its history; None: it does, or it begins a conversation.

    A history that shares neither an answer nor its whole opening with earlier ones begins a conversation.
    """
    missed = [answer for answer in seen.answers if answer.index > seen.num_continued]
    known = [answer for answer in missed if answer.form != "unknown"]
    at_fork = next((answer for answer in missed if seen.num_equal and answer.index == seen.num_equal), None)
    if at_fork and at_fork.form != "unknown":
        return "template" if at_fork.form == "same" else "reserialised_tool_call"
    if known:
        return "compaction" if known[-1].index < (known[-1].stood_at or 0) else "edited_history"
    if seen.num_messages < seen.longest and seen.num_continued < seen.num_equal:
        return "compaction"
    return "edited_history" if at_fork else None


class HashedAnswer(msgspec.Struct, frozen=True):
    """An assistant message of a request's history, by hashes."""

    index: int
    exact: int
    """Hash of the text, and of the tool calls as they are written."""
    meaning: int
    """Hash of the text, and of the tool calls, however their arguments are written."""


def hash_answer(index: int, message: JsonObject) -> HashedAnswer:
    """Hash the assistant message that stands here in a history."""
    text, calls = _read_text(message), _list_calls(message)
    exact = hash((text, *calls))
    return HashedAnswer(index, exact, hash((text, *[(name, _canonical(arguments)) for name, arguments in calls])))


@dataclass(slots=True)
class AnsweredMessages:
    """Messages that a rollout's model wrote, by hashes."""

    _exact: set[int] = field(default_factory=set[int])
    _places: dict[int, int] = field(default_factory=dict[int, int])
    """Number of messages before each answer, by its meaning."""
    _longest: dict[str, int] = field(default_factory=dict[str, int])
    """Largest number of messages, by conversation."""

    def add(self, message: JsonObject, conversation: str, num_messages: int) -> None:
        """Remember an answer to this number of messages."""
        hashed = hash_answer(num_messages, message)
        self._exact.add(hashed.exact)
        self._places[hashed.meaning] = num_messages
        self._longest[conversation] = max(num_messages, self._longest.get(conversation, 0))

    def recognise(self, answer: HashedAnswer) -> Returned:
        """Return whether the model wrote an assistant message of a history, and where that stood."""
        stood_at = self._places.get(answer.meaning)
        if answer.exact in self._exact:
            return Returned(answer.index, "same", stood_at)
        return Returned(answer.index, "unknown" if stood_at is None else "reserialised", stood_at)

    def longest(self, conversation: str) -> int:
        """Messages of the longest request that was answered in a conversation."""
        return self._longest.get(conversation, 0)


def _read_text(message: JsonObject) -> str:
    """Text of a message; its text parts are joined, and null is empty."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join([str(part.get("text", "")) for part in as_json_objects(cast("object", content))])
    return content if isinstance(content, str) else ""


def _list_calls(message: JsonObject) -> list[tuple[str, str]]:
    """(name, arguments) of each tool call."""
    functions = [as_json_object(call.get("function")) for call in as_json_objects(message.get("tool_calls"))]
    return [(str(function.get("name")), str(function.get("arguments"))) for function in functions]


_MAX_COMPARED: Final = 1 << 16
"""Letters of arguments. Longer ones are taken as written, because to parse them could stall the process."""


def _canonical(arguments: str) -> bytes:
    """One text for all JSON texts that mean the same."""
    if len(arguments) > _MAX_COMPARED:
        return arguments.encode()
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic")
    except UNREADABLE:
        return arguments.encode()
