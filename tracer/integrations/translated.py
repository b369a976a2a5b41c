"""Dialects in the words of chat completions, as a gateway records them; chat completions themselves stay as they are.

Two records of one call differ only where its server shows less than a gateway sees: token ids, an engine's own finish
reason where it stands for another, and the spelling of arguments that come as a JSON value.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import UNREADABLE, as_json_object, json_text, json_value, mend_surrogates
from agent_layer.translation import (
    Answer,
    Translation,
    join_content_pieces,
    join_message,
    join_response,
    read_content,
    read_message,
    read_response,
    translate_google,
    translate_messages,
    translate_responses,
)
from tracer.core import CallAnswer, CallRequest
from tracer.integrations.client import NOT_UNDERSTOOD, Dialect, read_sampling

NOT_RECORDED: Final = "not_recorded"
"""Finding of what a call holds that its record has no form for; its name follows."""
_MESSAGES: Final = ("system", "instructions", "systemInstruction", "messages", "input", "contents")
_NOT_SAMPLING: Final = frozenset({*_MESSAGES, "tools", "model", "stream", "stream_options"})
_UNSET: Final = ("Omit", "NotGiven")
"""Types by which clients mark what their caller did not set."""
_UNTRANSLATABLE: Final = (*UNREADABLE, BadInputError, KeyError, ValueError)


def translated_dialect(
    translate: Callable[[bytes], Translation],
    read: Callable[[bytes], Answer],
    join: Callable[[Iterable[str], list[str]], Answer],
    last: Iterable[str] = (),
) -> Dialect:
    """Return a dialect that is recorded in the words of chat completions.

    Args:
        translate: translates a request.
        read: reads a whole answer.
        join: joins the events of one that is streamed; the second argument takes errors of reading.
        last: types of the events that end a stream.
    """

    def read_request(body: Mapping[str, object]) -> CallRequest:
        set_body = {name: value for name, value in body.items() if type(value).__name__ not in _UNSET}
        return _read_request(translate, set_body)

    def read_answer(body: bytes) -> CallAnswer:
        unread: list[str] = []
        return _record(lambda: read(body), unread)

    def read_stream(chunks: Iterable[str], *, is_whole: bool) -> CallAnswer:
        unread: list[str] = []
        return _record(lambda: join(chunks, unread), unread, is_whole=is_whole)

    return Dialect(read_request, read_answer, read_stream, lambda event: _find_type(event) in last)


def _read_request(translate: Callable[[bytes], Translation], body: dict[str, object]) -> CallRequest:
    written = _write_body(body)
    text = mend_surrogates(written)
    model = body.get("model")
    model = model if isinstance(model, str) else None
    try:
        found = translate(text)
        names = [*found.losses.names, *found.losses.refused, *(["lone_surrogates"] if text != written else [])]
        if found.continues is not None:
            names.append("previous_answers")
        tools = found.fields.get("tools")
        return CallRequest(
            messages=[*found.system, *found.messages],
            tools=tools,
            sampling=as_json_object(json_value(found.read_sampling())),
            model=model,
            findings=[f"{NOT_RECORDED}:{name}" for name in names],
        )
    except _UNTRANSLATABLE:  # its server will refuse it; what it holds is recorded all the same
        items = [item for name in _MESSAGES for item in _listed(body.get(name))]
        sampling = read_sampling(body, _NOT_SAMPLING)
        return CallRequest(
            messages=[item if isinstance(item, dict) else {"content": item} for item in items],
            tools=json_value(body.get("tools")),
            sampling=sampling,
            model=model,
            findings=["request_not_understood"],
        )


def _write_body(body: dict[str, object]) -> bytes:
    """Return the JSON text that a client sends; where JSON has no form for a value, see ``json_value``."""
    try:
        return json.dumps(body, default=json_value, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        return json_text(body)


def _listed(value: object) -> list[object]:
    found = json_value(value)
    if isinstance(found, list):
        return cast("list[object]", found)
    return [] if found is None else [found]


def _record(read: Callable[[], Answer], unread: list[str], *, is_whole: bool = True) -> CallAnswer:
    """Return an answer as it is recorded. One that cannot be read is a finding instead of an error."""
    try:
        answer = read()
    except _UNTRANSLATABLE as error:
        return CallAnswer(findings=[NOT_UNDERSTOOD], error=str(error), status="ok" if is_whole else "aborted")
    names = [*answer.losses.names, *answer.losses.refused]
    status = "ok" if is_whole or answer.is_complete else "aborted"
    return CallAnswer(
        actions=answer.actions or None,
        model=answer.model,
        usage=answer.usage,
        status="error" if answer.failure else status,
        error=answer.failure or next(iter(unread), None),
        findings=[*(f"{NOT_RECORDED}:{name}" for name in names), *([NOT_UNDERSTOOD] if unread else [])],
    )


class _Kind(msgspec.Struct):
    type: str = ""


def _find_type(event: str) -> str:
    try:
        return msgspec.json.decode(event, type=_Kind).type
    except msgspec.DecodeError:
        return ""


RESPONSES: Final = translated_dialect(
    translate_responses,
    read_response,
    join_response,
    ("response.completed", "response.incomplete", "response.failed"),
)
MESSAGES: Final = ("system", "instructions", "systemInstruction", "messages", "input", "contents")
_NOT_SAMPLING: Final = frozenset({*_MESSAGES, "tools", "model", "stream", "stream_options"})
_UNSET: Final = ("Omit", "NotGiven")
"""Types by which clients mark what their caller did not set."""
_UNTRANSLATABLE: Final = (*UNREADABLE, BadInputError, KeyError, ValueError)


def translated_dialect(
    translate: Callable[[bytes], Translation],
    read: Callable[[bytes], Answer],
    join: Callable[[Iterable[str], list[str]], Answer],
    last: Iterable[str] = (),
) -> Dialect:
    """Return a dialect that is recorded in the words of chat completions.

    Args:
        translate: translates a request.
        read: reads a whole answer.
        join: joins the events of one that is streamed; the second argument takes errors of reading.
        last: types of the events that end a stream.
    """

    def read_request(body: Mapping[str, object]) -> CallRequest:
        set_body = {name: value for name, value in body.items() if type(value).__name__ not in _UNSET}
        return _read_request(translate, set_body)

    def read_answer(body: bytes) -> CallAnswer:
        unread: list[str] = []
        return _record(lambda: read(body), unread)

    def read_stream(chunks: Iterable[str], *, is_whole: bool) -> CallAnswer:
        unread: list[str] = []
        return _record(lambda: join(chunks, unread), unread, is_whole=is_whole)

    return Dialect(read_request, read_answer, read_stream, lambda event: _find_type(event) in last)


def _read_request(translate: Callable[[bytes], Translation], body: dict[str, object]) -> CallRequest:
    written = _write_body(body)
    text = mend_surrogates(written)
    model = body.get("model")
    model = model if isinstance(model, str) else None
    try:
        found = translate(text)
        names = [*found.losses.names, *found.losses.refused, *(["lone_surrogates"] if text != written else [])]
        if found.continues is not None:
            names.append("previous_answers")
        tools = found.fields.get("tools")
        return CallRequest(
            messages=[*found.system, *found.messages],
            tools=tools,
            sampling=as_json_object(json_value(found.read_sampling())),
            model=model,
            findings=[f"{NOT_RECORDED}:{name}" for name in names],
        )
    except _UNTRANSLATABLE:  # its server will refuse it; what it holds is recorded all the same
        items = [item for name in _MESSAGES for item in _listed(body.get(name))]
        sampling = read_sampling(body, _NOT_SAMPLING)
        return CallRequest(
            messages=[item if isinstance(item, dict) else {"content": item} for item in items],
            tools=json_value(body.get("tools")),
            sampling=sampling,
            model=model,
            findings=["request_not_understood"],
        )


def _write_body(body: dict[str, object]) -> bytes:
    """Return the JSON text that a client sends; where JSON has no form for a value, see ``json_value``."""
    try:
        return json.dumps(body, default=json_value, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        return json_text(body)


def _listed(value: object) -> list[object]:
    found = json_value(value)
    if isinstance(found, list):
        return cast("list[object]", found)
    return [] if found is None else [found]


def _record(read: Callable[[], Answer], unread: list[str], *, is_whole: bool = True) -> CallAnswer:
    """Return an answer as it is recorded. One that cannot be read is a finding instead of an error."""
    try:
        answer = read()
    except _UNTRANSLATABLE as error:
        return CallAnswer(findings=[NOT_UNDERSTOOD], error=str(error), status="ok" if is_whole else "aborted")
    names = [*answer.losses.names, *answer.losses.refused]
    status = "ok" if is_whole or answer.is_complete else "aborted"
    return CallAnswer(
        actions=answer.actions or None,
        model=answer.model,
        usage=answer.usage,
        status="error" if answer.failure else status,
        error=answer.failure or next(iter(unread), None),
        findings=[*(f"{NOT_RECORDED}:{name}" for name in names), *([NOT_UNDERSTOOD] if unread else [])],
    )


class _Kind(msgspec.Struct):
    type: str = ""


def _find_type(event: str) -> str:
    try:
        return msgspec.json.decode(event, type=_Kind).type
    except msgspec.DecodeError:
        return ""


RESPONSES: Final = translated_dialect(
    translate_responses,
    read_response,
    join_response,
    ("response.completed", "response.incomplete", "response.failed"),
)


def google_dialect(model: str, *, is_streamed: bool) -> Dialect:
    """Return Google's dialect for one request: its address names the model, and whether the answer is streamed."""
    translate = partial(translate_google, model=model, is_streamed=is_streamed)
    return translated_dialect(translate, read_content, join_content_pieces)


MESSAGES: Final = translated_dialect(translate_messages, read_message, join_message, ("message_stop",))
