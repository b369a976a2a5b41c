"""Redaction: a function of the user's rewrites every text from outside before it is recorded.

Ids, hashes, numbers and token ids stay unchanged. If the function fails, the record is refused: nothing is recorded
unredacted.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Final, TypeAlias, TypeVar, cast

import msgspec

from agent_layer.errors import BadInputError, RedactionError
from agent_layer.schema import (
    UNREADABLE,
    Action,
    AttemptStarted,
    Content,
    JsonObject,
    Label,
    LogRecord,
    Observation,
    Outcome,
    Reward,
    StepPart,
    Task,
)

Redact: TypeAlias = Callable[[str], object]
"""Returns the text to record; any other result is an error."""
R = TypeVar("R", bound=LogRecord)

_TEXTS: Final[dict[type, tuple[str, ...]]] = {
    Action: ("message",),
    AttemptStarted: ("task",),
    Label: ("comment",),
    Observation: ("arguments", "output"),
    Outcome: ("error", "traceback", "result", "details"),
    Reward: ("error", "comment"),
    StepPart: ("actions", "error", "sampling_asked", "sampling_applied"),
    Task: ("input", "grading"),
}
"""Fields with text from outside, or with records that have such fields."""


def load_redaction(name: str | None) -> Redact | None:
    """Import the function named ``module:function``; None without a name.

    Raises: BadInputError: there is no such function.
    """
    if name is None:
        return None
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInputError(
            f"setting redact: expected module:function, found {name!r}, which cannot be imported ({error}); correct"
            " AGENT_LAYER_REDACT"
        ) from error
    if not callable(found):
        raise BadInputError(f"setting redact: expected a function, found {type(found).__name__}; correct {name!r}")
    return cast("Redact", found)


def redact_record(record: R, redact: Redact) -> R:
    """Return the record with all its texts redacted.

    Raises: RedactionError: the function failed, or did not return a text.
    """
    if isinstance(record, Content):
        return msgspec.structs.replace(record, body=_in_body(record.body, redact))
    return cast("R", _in_value(record, redact))


def _in_body(body: bytes, redact: Redact) -> bytes:
    try:
        value = msgspec.json.decode(body)
    except UNREADABLE:  # no text: a picture, for example
        return body
    return msgspec.json.encode(_in_value(value, redact))


def _in_value(value: object, redact: Redact) -> object:
    match value:
        case str():
            return _in_text(value, redact)
        case dict():
            return {name: _in_value(one, redact) for name, one in cast("JsonObject", value).items()}
        case list():
            return [_in_value(one, redact) for one in cast("list[object]", value)]
        case msgspec.Struct():
            fields = {name: _in_value(getattr(value, name), redact) for name in _TEXTS.get(type(value), ())}
            return msgspec.structs.replace(value, **fields)
        case _:
            return value


def _in_text(text: str, redact: Redact) -> str:  # kept: one of the cases of a match
    try:
        kept = redact(text)
    except Exception as error:  # the function is the user's and may raise anything
        raise RedactionError(f"redaction: expected a text, found {error!r}; nothing was recorded, mend it") from error
    if not isinstance(kept, str):
        raise RedactionError(
            f"redaction: expected a text, found {type(kept).__name__}; nothing was recorded, let it return the text"
        )
    return kept
