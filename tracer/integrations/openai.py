"""Tracing of the openai client: chat completions and responses. Importing this module installs it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import cast

import msgspec
from openai import AsyncOpenAI, OpenAI

from agent_layer.schema import Action, GrowingMessage, JsonObject, Usage
from agent_layer.translation import read_as, read_events
from tracer.core import CallAnswer, CallRequest
from tracer.integrations.client import NOT_UNDERSTOOD, Api, Dialect, read_sampling, trace_client
from tracer.integrations.translated import RESPONSES

_NOT_SAMPLING = frozenset({"messages", "tools", "model", "stream", "stream_options"})
_DONE = "[DONE]"


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None

    def count(self) -> Usage:
        """Return it as it is recorded."""
        cached = self.prompt_tokens_details and self.prompt_tokens_details.cached_tokens
        return Usage(prompt_tokens=self.prompt_tokens, response_tokens=self.completion_tokens, cached_tokens=cached)


class _Choice(msgspec.Struct):
    index: int = 0
    message: JsonObject | None = None
    delta: JsonObject | None = None
    finish_reason: str | None = None


class _Body(msgspec.Struct):
    """An answer, or one chunk of it."""

    choices: list[_Choice] = []
    model: str | None = None
    usage: _Usage | None = None


def _read_request(body: Mapping[str, object]) -> CallRequest:
    """Read a request."""
    messages, model = body.get("messages"), body.get("model")
    return CallRequest(
        messages=cast("list[object]", messages) if isinstance(messages, list) else None,
        tools=body.get("tools"),
        sampling=read_sampling(body, _NOT_SAMPLING),
        model=model if isinstance(model, str) else None,
    )


def _read_answer(body: bytes) -> CallAnswer:
    """Read an answer that was not streamed."""
    try:
        answer = read_as(body, _Body)
    except msgspec.DecodeError as error:
        return CallAnswer(findings=[NOT_UNDERSTOOD], error=str(error))
    choices = sorted(answer.choices, key=lambda choice: choice.index)
    return _answer([answer], {choice.index: choice.message or {} for choice in choices})


def _read_stream(chunks: Iterable[str], *, is_whole: bool) -> CallAnswer:
    """Assemble an answer from its chunks.

    Args:
        chunks: JSON text of each; ``[DONE]`` may be among them.
        is_whole: False when the caller did not read the stream to its end: the answer counts as aborted, unless each
            choice had ended.
    """
    unread, messages = list[str](), defaultdict[int, GrowingMessage](GrowingMessage)
    bodies = list(read_events((chunk for chunk in chunks if not _is_last(chunk)), _Body, unread))
    for choice in (choice for body in bodies for choice in body.choices):
        messages[choice.index].add(choice.delta or {})
    read = _answer(bodies, {index: message.whole() for index, message in sorted(messages.items())})
    if unread:
        read = msgspec.structs.replace(read, findings=[NOT_UNDERSTOOD], error=unread[0])
    is_complete = bool(read.actions) and all(action.finish_reason for action in read.actions or ())
    # many readers leave with the last piece of text
    return read if is_whole or is_complete else msgspec.structs.replace(read, status="aborted")


def _answer(bodies: list[_Body], messages: dict[int, JsonObject]) -> CallAnswer:
    reasons = {choice.index: choice.finish_reason for body in bodies for choice in body.choices if choice.finish_reason}
    usage = next((body.usage for body in reversed(bodies) if body.usage), None)
    return CallAnswer(
        actions=[Action(message=message, finish_reason=reasons.get(index)) for index, message in messages.items()],
        model=next((body.model for body in bodies if body.model), None),
        usage=usage and usage.count(),
    )


def _is_last(event: str) -> bool:
    return event.startswith(_DONE)


CHAT = Dialect(_read_request, _read_answer, _read_stream, _is_last)


__all__: list[str] = []


def _key_headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


DIALECTS = {"/chat/completions": CHAT, "/responses": RESPONSES}
trace_client(Api(OpenAI, AsyncOpenAI, DIALECTS, root="", key_headers=_key_headers))
