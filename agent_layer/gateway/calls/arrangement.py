"""The conversation as a chat template takes it, and the form of an answer in words where no grammar may force it.

Many templates take one system message, at the beginning. vLLM joins all of them there; a reminder that comes with the
fifth turn then changes the beginning of every prompt, and no turn continues the one before. So only those at the
beginning are joined. A later one is shown where it stands, as words of the user. Most templates leave out a message of
the role ``developer`` without a word; to them it is a system message.

A form that an agent asks for (``response_format`` and its like) stands at the end of the system message. Without one it
stands at the end of the user's first message: templates without system messages refuse one, and others have a default
that it would replace. Both stay where they are for as long as a conversation grows, as the last message does not. A
forced tool is not put into words: frameworks force tools in some turns only, and the tools are in the prompt anyway.

What a message becomes depends on its neighbours up to the next answer. So a prompt that continues an earlier one does
so after it was arranged, as long as the agent asks for the same form.
"""

from typing import Final, cast

import msgspec

from agent_layer.engines import find_unreproducible
from agent_layer.gateway.dialects.chat import ChatRequest, MessageFacts, find_facts
from agent_layer.schema import JsonObject, as_json_objects
from agent_layer.translation import encoded, text_part

REARRANGED: Final = "rearranged:system"
"""Finding of a request with several system messages, one that is not the first message, or one of a developer."""
_TOOL_CHOICE: Final = "tool_choice"
_DEVELOPER: Final = "developer"
_INSTRUCTING: Final = frozenset({"system", _DEVELOPER})
_GAP: Final = "\n\n"
"""What stands between the texts of two messages, as vLLM joins them."""


def arrange(request: ChatRequest, form: str | None = None) -> ChatRequest:
    """Return a request as an engine takes it.

    Args:
        request: what the client asks.
        form: of the answer, in words; None: any.
    """
    if form is not None or _DEVELOPER in request.roles[:1] or not _INSTRUCTING.isdisjoint(request.roles[1:]):
        request = _arrange_messages(request, form)
    return request if request.has_tools else _without_tools(request)


def _arrange_messages(request: ChatRequest, form: str | None) -> ChatRequest:
    turns = _join_system(request)
    found = [REARRANGED] if any(turn.is_moved for turn in turns) else []
    if form is not None:
        place = next((turn for turn in turns if turn.role == "user" or turn.role in _INSTRUCTING), None)
        if place is None:
            source = encoded({"role": "system"})
            turns.insert(0, place := _Turn(find_facts(source), source))
        place.add(form)
    made = [turn.encode() for turn in turns]
    arranged = request.with_messages([message for message, _ in made], [facts for _, facts in made])
    return msgspec.structs.replace(arranged, findings=[*request.findings, *found])


class _Turn:
    """A message that may become another; what stays is not read."""

    def __init__(self, facts: MessageFacts, source: msgspec.Raw) -> None:
        self.role, self.is_moved, self.is_changed = facts.role, False, False
        self._facts, self._source, self._message = facts, source, cast("JsonObject | None", None)

    @property
    def message(self) -> JsonObject:
        """The message, read."""
        if self._message is None:
            self._message = cast("JsonObject", msgspec.json.decode(self._source))
        return self._message

    def give_to(self, role: str) -> None:
        """Make it a message of another role."""
        self._message = {**self.message, "role": role}
        self.role, self.is_moved, self.is_changed = role, True, True

    def is_joined_by(self, turn: "_Turn") -> bool:
        """Whether the message behind this one becomes part of it."""
        if self.role in _INSTRUCTING:
            return turn.role in _INSTRUCTING
        return self.role == turn.role == "user" and (self.is_moved or turn.is_moved)

    def join(self, turn: "_Turn") -> None:
        """Make the message behind this one part of it."""
        self.add(turn.message.get("content"))
        self.is_moved = True

    def add(self, content: object) -> None:
        """Put a content, text or parts, behind this one's."""
        self._message = {**self.message, "content": _join(self.message.get("content"), content)}
        self.is_changed = True

    def encode(self) -> tuple[msgspec.Raw, MessageFacts]:
        """Return the JSON text, and what it holds."""
        if not self.is_changed:
            return self._source, self._facts
        text = encoded(self._message)
        return text, find_facts(text)


def _join_system(request: ChatRequest) -> list[_Turn]:
    """Return the messages with one system message at most, the first."""
    turns: list[_Turn] = []
    for facts, source in zip(request.facts, request.messages, strict=True):
        turn, role = _Turn(facts, source), facts.role
        if role in _INSTRUCTING and turns and turns[-1].role not in _INSTRUCTING:
            turn.give_to("user")
        elif role == _DEVELOPER:
            turn.give_to("system")
        if turns and turns[-1].is_joined_by(turn):
            turns[-1].join(turn)
        else:
            turns.append(turn)
    return turns


def _join(before: object, after: object) -> object:
    """Join contents; what is text alone becomes one text, as templates read parts in different ways."""
    if not before or not after:
        return before or after or ""
    texts = [_as_text(before), _as_text(after)]
    if None not in texts:
        return _GAP.join(text for text in texts if text is not None)
    return [*_as_parts(before), *_as_parts(after)]


def _as_text(content: object) -> str | None:
    """Return a content as one text; None: it shows more."""
    parts = _as_parts(content)
    texts = [part["text"] for part in parts if part.get("type") in ("text", "input_text") and "text" in part]
    return "\n".join(map(str, texts)) if len(texts) == len(parts) else None


def _as_parts(content: object) -> list[JsonObject]:
    return [text_part(content)] if isinstance(content, str) else as_json_objects(content)


def _without_tools(request: ChatRequest) -> ChatRequest:
    """Leave out what engines refuse without tools: their choice, and an empty list of them."""
    unused = {_TOOL_CHOICE, "tools"} & request.pieces.keys()
    if not unused:
        return request
    forced = [_TOOL_CHOICE] if _TOOL_CHOICE in find_unreproducible(request.sampling) else []
    return msgspec.structs.replace(
        request,
        pieces={name: piece for name, piece in request.pieces.items() if name not in unused},
        sampling={name: value for name, value in request.sampling.items() if name != _TOOL_CHOICE},
        tools=None,
        tool_facts=None,
        not_applied=[*request.not_applied, *forced],
    )
