"""The texts inside a trajectory that people search for. Pure.

Tasks (what the agent saw of them), messages, answers, and what tools answered. Left out: ``grading``, rewards and
outcomes, which may quote it; tools on offer and framework states; contents in blobs.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from agent_layer.schema import UNREADABLE, AttemptStarted, Content, JsonObject, LogRecord, Observation, StepPart

Where: TypeAlias = Literal["task", "message", "answer", "observation"]
"""``message``: of a prompt. ``answer``: of the model. ``observation``: of a tool or environment."""

MAX_CHARACTERS: Final = 65_536
"""Characters of one text; the rest of a longer one is left out."""
_ITEMS: Final = frozenset({"message", "reasoning", "function_call", "function_call_output"})
"""Types of those parts of a prompt that have no role."""
_NAMES: Final = frozenset({"role", "type", "id", "tool_call_id", "call_id", "index", "status", "signature", "data"})
"""Fields of messages that hold no text of anybody."""
_MEDIA: Final = frozenset({"image_url", "input_audio", "audio_url", "video_url", "source"})
_DEEPEST: Final = 64


class Text(NamedTuple):
    """A text, and what it belongs to."""

    where: Where
    key: str
    """Hash of a message, id of the call of an answer or observation; empty for a task."""
    text: str


def find_texts(records: Iterable[LogRecord]) -> Iterator[Text]:
    """Yield the texts in the records of one trajectory, with repetition; empty ones are left out."""
    for record in records:
        match record:
            case AttemptStarted(task=task) if task is not None:
                yield from _made("task", "", task.input)
            case Content(hash=name, body=body):
                yield from _made("message", name, _message(body))
            case StepPart(call_id=call_id, actions=actions):
                for action in actions or ():
                    yield from _made("answer", call_id, action.message)
            case Observation(call_id=call_id, arguments=arguments, output=output):
                yield from _made("observation", call_id or "", [arguments, output])
            case _:
                pass


def _made(where: Where, key: str, value: object) -> Iterator[Text]:
    if text := "\n".join(_strings(value, 0)).strip():
        yield Text(where, key, text)


def _message(body: bytes) -> object:
    """Return a content that is a message; None for tools, states and media."""
    if not body.startswith(b"{"):
        return None
    try:
        fields = cast("JsonObject", msgspec.json.decode(body))
    except UNREADABLE:
        return None
    return fields if "role" in fields or fields.get("type") in _ITEMS else None


def _strings(value: object, depth: int) -> Iterator[str]:
    """Yield the texts and numbers inside a JSON value, without names, ids and media."""
    if isinstance(value, str):
        yield value.encode("utf-8", "replace").decode()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
    elif depth < _DEEPEST:
        for item in _items(value):
            yield from _strings(item, depth + 1)


def _items(value: object) -> Iterable[object]:
    match value:
        case list():
            return cast("list[object]", value)
        case dict():
            fields = cast("JsonObject", value)
            return [item for name, item in fields.items() if name not in _NAMES and name not in _MEDIA]
        case _:
            return ()
