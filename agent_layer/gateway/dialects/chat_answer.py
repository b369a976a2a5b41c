"""The gateway's internal form of answers, chat completions: what the engine answered, and what the client sees.

Only what the record needs is decoded; everything that this file does not name passes through byte for byte.

Engines add values for the record that a client did not ask for. In place of such a value the client sees null; every
other byte stays. The search is for names with their quotes, which inside a JSON text would be escaped, so no text that
a model wrote can match.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Final

import msgspec

from agent_layer.errors import EngineError
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.schema import UNREADABLE, Action, JsonObject, Logprobs, TokenIds

_HIDDEN_IDS: Final = re.compile(rb'"token_ids": ?\[[\d, ]*+\]')
_PROMPT_IDS: Final = re.compile(rb'"prompt_token_ids": ?\[[\d, ]*+\]')
_TEXT: Final = rb'"(?:[^"\\]++|\\.)*+"'
_PLAIN: Final = rb'[^"{}\[\]]++|' + _TEXT
_ENTRY: Final = rb"\{(?:" + _PLAIN + rb"|\[[^\"\[\]]*+\])*+\}"
_ONE_LOGPROB: Final = re.compile(
    rb'"logprobs": ?\{"content": ?\[\{"token": ?' + _TEXT + rb', ?"logprob": ?[-\d.e]++, ?"bytes": ?\[[\d, ]*+\],'
    rb' ?"top_logprobs": ?\[\]\}\]\}'
)
"""What vLLM sends with each token, matched in a third of the time."""
_HIDDEN_LOGPROBS: Final = re.compile(rb'"logprobs": ?\{(?:' + _PLAIN + rb"|\[(?:" + _ENTRY + rb"|[, ])*+\])*+\}")
_SOME_LOGPROBS: Final = re.compile(rb'"logprobs": ?\{')


def hide_values(body: bytes, values: Iterable[tuple[bytes, msgspec.Raw]]) -> bytes:
    """Put null in place of members' values.

    Args:
        body: JSON text.
        values: (name with quotes, value in the bytes of the body); those of one name in their order.
    """
    places = sorted(_places_of(body, values))
    if not places:
        return body
    ends = [0, *[end for _, end in places]]
    kept = [body[end:begin] for end, (begin, _) in zip(ends, places, strict=False)]
    return b"null".join([*kept, body[ends[-1] :]])


def hide_in_events(lines: bytes, *, ids: bool, logprobs: bool) -> bytes:
    """Put null in place of token ids or log-probabilities in whole lines of an event stream."""
    if ids:
        lines = _HIDDEN_IDS.sub(b'"token_ids":null', lines)
        if b'"prompt_token_ids"' in lines:
            lines = _PROMPT_IDS.sub(b'"prompt_token_ids":null', lines)
    if not logprobs:
        return lines
    lines = _ONE_LOGPROB.sub(b'"logprobs":null', lines)
    return _HIDDEN_LOGPROBS.sub(b'"logprobs":null', lines) if _SOME_LOGPROBS.search(lines) else lines


def _places_of(body: bytes, values: Iterable[tuple[bytes, msgspec.Raw]]) -> Iterator[tuple[int, int]]:
    """(begin, end) of each value."""
    read: dict[bytes, int] = {}
    for name, value in values:
        if (text := bytes(value)) in (b"", b"null"):
            continue
        begin = _value_at(body, name, text, read.get(name, 0))
        if begin >= 0:
            read[name] = begin + len(text)
            yield begin, read[name]


def _value_at(body: bytes, name: bytes, text: bytes, start: int) -> int:
    """Where the value of this name begins; -1: nowhere."""
    at = body.find(name, start)
    while at >= 0:
        begin = at + len(name) + 1
        begin += body.startswith(b" ", begin)
        if body.startswith(text, begin):
            return begin
        at = body.find(name, begin)
    return -1


_ABSENT: Final = msgspec.Raw()


class LogprobEntry(msgspec.Struct, gc=False):
    """What is read of one sampled token."""

    logprob: float


class LogprobList(msgspec.Struct, gc=False):
    """The log-probabilities of a choice, or of a chunk of it."""

    content: list[LogprobEntry] | None = None

    @property
    def values(self) -> list[float]:
        """One for each token."""
        return [entry.logprob for entry in self.content or ()]


class PromptDetails(msgspec.Struct, gc=False):
    """Of the prompt's tokens."""

    cached_tokens: int | None = None


class ResponseDetails(msgspec.Struct, gc=False):
    """Of the sampled tokens."""

    reasoning_tokens: int | None = None


class EngineUsage(msgspec.Struct, gc=False):
    """What the engine counted."""

    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: ResponseDetails | None = None


class _Choice(msgspec.Struct, gc=False):
    message: JsonObject
    token_ids: msgspec.Raw = _ABSENT
    logprobs: msgspec.Raw = _ABSENT
    routed_experts: msgspec.Raw = _ABSENT
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class _Completion(msgspec.Struct, gc=False):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    prompt_token_ids: msgspec.Raw = _ABSENT
    usage: EngineUsage | None = None


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine answered, without what was added for the record."""

    body: bytes
    """For a client that speaks this dialect; empty after a stream."""
    prompt_token_ids: TokenIds | None
    actions: list[Action]
    """[num_choices]."""
    usage: EngineUsage | None = None
    stop_reason: str | int | None = None
    """Which stop text or token ended the first choice."""
    shown_logprobs: list[msgspec.Raw] = []
    """Those of the first choice as the engine wrote them, where a translated answer shows them."""


_COMPLETION: Final = msgspec.json.Decoder(_Completion)
_IDS: Final = msgspec.json.Decoder(list[int] | None)
_LOGPROBS: Final = msgspec.json.Decoder(LogprobList | None)
_FILE: Final = msgspec.json.Decoder(bytes | None)


def read_answer(body: bytes, request: ChatRequest, version: int) -> ChatAnswer:
    """Read the engine's whole answer.

    Args:
        body: JSON text.
        request: what the client asked, which decides what it gets back.
        version: policy version that the engine serves.

    Raises: EngineError: it is no chat completion.
    """
    try:
        answer = _COMPLETION.decode(body)
        return ChatAnswer(
            body=hide_values(body, _hidden(answer, request)),
            prompt_token_ids=_ids_of(answer.prompt_token_ids),
            actions=[_action_of(choice, version) for choice in answer.choices],
            usage=answer.usage,
            stop_reason=answer.choices[0].stop_reason,
            shown_logprobs=read_shown(answer.choices[0].logprobs) if request.shows_logprobs else [],
        )
    except UNREADABLE as error:
        raise EngineError(
            f"engine's answer: expected a chat completion, found {error}; is it an OpenAI-compatible server?"
        ) from error


def read_shown(logprobs: msgspec.Raw) -> list[msgspec.Raw]:
    """Cut the log-probabilities of a choice, or of a chunk of it, into those of its tokens.

    Raises: UNREADABLE: they are none.
    """
    return ((_SHOWN.decode(logprobs) or _Shown()).content or []) if logprobs else []


class _Shown(msgspec.Struct, gc=False):
    content: list[msgspec.Raw] | None = None


_SHOWN: Final = msgspec.json.Decoder(_Shown | None)


def build_action(
    message: JsonObject,
    ids: TokenIds | None,
    logprobs: Logprobs | None,
    finish_reason: str | None,
    version: int,
) -> Action:
    """Record one choice."""
    return Action(
        message=message,
        response_token_ids=ids,
        logprobs=logprobs,
        finish_reason=finish_reason,
        policy_versions=[(version, len(ids))] if ids else None,
    )


def _action_of(choice: _Choice, version: int) -> Action:
    ids, logprobs = _ids_of(choice.token_ids), _logprobs_of(choice)
    action = build_action(choice.message, ids, logprobs, choice.finish_reason, version)
    arrays = _arrays_of(choice)
    return msgspec.structs.replace(action, arrays=arrays) if arrays else action


def _arrays_of(choice: _Choice) -> dict[str, bytes]:
    """Per-token arrays by name; vLLM sends each as a .npy file in base64."""
    routed = None if choice.routed_experts == _ABSENT else _FILE.decode(choice.routed_experts)
    return {} if routed is None else {"routed_experts": routed}


def _hidden(answer: _Completion, request: ChatRequest) -> Iterator[tuple[bytes, msgspec.Raw]]:
    """What the client did not ask for."""
    if not request.wants_token_ids:
        yield b'"prompt_token_ids"', answer.prompt_token_ids
    for choice in answer.choices:
        if not request.wants_token_ids:
            yield b'"token_ids"', choice.token_ids
        if not request.wants_logprobs:
            yield b'"logprobs"', choice.logprobs
        if not request.wants_experts:
            yield b'"routed_experts"', choice.routed_experts


def _ids_of(piece: msgspec.Raw) -> TokenIds | None:
    ids = None if piece == _ABSENT else _IDS.decode(piece)
    return None if ids is None else TokenIds(ids)


def _logprobs_of(choice: _Choice) -> Logprobs | None:
    found = None if choice.logprobs == _ABSENT else _LOGPROBS.decode(choice.logprobs)
    return None if found is None or found.content is None else Logprobs(found.values)
