"""Dialects in the words of chat completions, as a gateway records them; chat completions themselves stay as they are.

Two records of one call differ where a gateway knows what no client sees (token ids, what an engine was really asked),
and where a server's words are fewer than an engine's: arguments that Messages shows as an object have our spelling, a
reason to stop that no dialect has is the nearest one, and a stream of chat completions has a usage if it was asked for.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import UNREADABLE, JsonObject, as_json_object, json_text, json_value, mend_surrogates
from agent_layer.translation import (
    Answer,
    Losses,
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
_SPOKEN: Final = ("system", "instructions", "systemInstruction", "messages", "input", "contents")
_NOT_SAMPLING: Final = frozenset({*_SPOKEN, "tools", "model", "stream", "stream_options"})
_UNSET: Final = ("Omit", "NotGiven")
"""Types by which clients mark what their caller did not set."""
_UNTRANSLATABLE: Final = (*UNREADABLE, BadInputError, KeyError, ValueError)


def translated_dialect(
    translate: Callable[[bytes], Translation],
    read: Callable[[bytes], Answer],
    join: Callable[[Iterable[str], list[str]], Answer],
    *last: str,
) -> Dialect:
    """Return a dialect that is recorded in the words of chat completions.

    Args:
        translate: translates a request.
        read: reads a whole answer.
        join: joins the events of one that is streamed; the second argument takes errors of reading.
        last: types of the events that end a stream.
    """

    def read_answer(body: bytes) -> CallAnswer:
        return _record_answer(lambda: read(body), [])

    def read_stream(chunks: Iterable[str], *, is_whole: bool) -> CallAnswer:
        unread: list[str] = []
        return _record_answer(lambda: join(chunks, unread), unread, is_whole=is_whole)

    def is_last(event: str) -> bool:
        try:
            return msgspec.json.decode(event, type=_Kind).type in last
        except (*UNREADABLE, UnicodeEncodeError):
            return False

    return Dialect(partial(_record_request, translate), read_answer, read_stream, is_last)


class _Kind(msgspec.Struct):
    type: str = ""


def google_dialect(model: str, *, is_streamed: bool) -> Dialect:
    """Return Google's dialect for one request: its address names the model, and whether the answer is streamed."""
    translate = partial(translate_google, model=model, is_streamed=is_streamed)
    return translated_dialect(translate, read_content, join_content_pieces)


def _record_request(translate: Callable[[bytes], Translation], body: Mapping[str, object]) -> CallRequest:
    sent = {name: value for name, value in body.items() if type(value).__name__ not in _UNSET}
    model, written = sent.get("model"), _write_body(sent)
    mended = mend_surrogates(written)
    request = CallRequest(model=model if isinstance(model, str) else None)
    try:
        found = translate(mended)
        sampling = as_json_object(json_value(found.read_sampling()))
    except _UNTRANSLATABLE:  # its server will refuse it; what it holds is recorded all the same
        return msgspec.structs.replace(
            request,
            messages=[item for name in _SPOKEN for item in _find_items(json_value(sent.get(name)))],
            tools=json_value(sent.get("tools")),
            sampling=read_sampling(sent, _NOT_SAMPLING),
            findings=["request_not_understood"],
        )
    names = {"lone_surrogates": mended != written, "previous_answers": found.continues is not None}
    return msgspec.structs.replace(
        request,
        messages=[*found.system, *(as_json_object(msgspec.json.decode(one)) for one in found.messages)],
        tools=found.fields.get("tools"),
        sampling=sampling,
        findings=_name_losses(found.losses, *(name for name, is_lost in names.items() if is_lost)),
    )


def _write_body(body: dict[str, object]) -> bytes:
    """Return the JSON text that a client sends; where JSON has no form for a value, see ``json_value``."""
    try:
        return json.dumps(body, default=json_value, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        return json_text(body)


def _find_items(value: object) -> list[JsonObject]:
    items = cast("list[object]", value) if isinstance(value, list) else [] if value is None else [value]
    return [as_json_object(item) or {"content": item} for item in items]


def _record_answer(read: Callable[[], Answer], unread: list[str], *, is_whole: bool = True) -> CallAnswer:
    """Return an answer as it is recorded. One that cannot be read is a finding instead of an error."""
    try:
        answer = read()
    except _UNTRANSLATABLE as error:
        answer = Answer(actions=[], losses=Losses())
        unread.append(str(error))
    status = "ok" if is_whole or answer.is_complete else "aborted"
    is_unread = bool(unread) or (status == "ok" and not answer.actions and not answer.failure)
    return CallAnswer(
        actions=answer.actions or None,
        model=answer.model,
        usage=answer.usage,
        status="error" if answer.failure else status,
        error=answer.failure or next(iter(unread), None),
        findings=[*_name_losses(answer.losses), *([NOT_UNDERSTOOD] if is_unread else [])],
    )


def _name_losses(losses: Losses, *others: str) -> list[str]:  # kept: requests and answers name them alike
    return [f"{NOT_RECORDED}:{name}" for name in (*losses.names, *losses.refused, *others)]


_LAST: Final = ("response.completed", "response.incomplete", "response.failed")
RESPONSES: Final = translated_dialect(translate_responses, read_response, join_response, *_LAST)
MESSAGES: Final = translated_dialect(translate_messages, read_message, join_message, "message_stop")
