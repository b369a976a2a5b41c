"""The gateway's internal form of answers, chat completions: what the engine answered, and what the client sees.

Only what the record needs is decoded; everything that this file does not name passes through byte for byte.

Engines add values for the record that a client did not ask for. In place of such a value the client sees null; every
other byte stays. The search is for names with their quotes, which inside a JSON text would be escaped, so no text that
a model wrote can match.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from agent_layer.errors import EngineError
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.refusals import describe_garbage
from agent_layer.schema import DISAGREES, UNREAD, UNREADABLE, Action, JsonObject, Logprobs, TokenIds, mend_surrogates

T = TypeVar("T")

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
    places = sorted(_find_places(body, values))
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


def _find_places(body: bytes, values: Iterable[tuple[bytes, msgspec.Raw]]) -> Iterator[tuple[int, int]]:
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
TokenId: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


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
    """What the engine counted; None: it does not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: ResponseDetails | None = None


class _Choice(msgspec.Struct, gc=False):
    """Only what an answer cannot do without has a type here."""

    message: JsonObject
    index: msgspec.Raw = _ABSENT
    token_ids: msgspec.Raw = _ABSENT
    logprobs: msgspec.Raw = _ABSENT
    routed_experts: msgspec.Raw = _ABSENT
    finish_reason: msgspec.Raw = _ABSENT
    stop_reason: msgspec.Raw = _ABSENT


class _Completion(msgspec.Struct, gc=False):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    prompt_token_ids: msgspec.Raw = _ABSENT
    usage: msgspec.Raw = _ABSENT


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine answered, without what was added for the record."""

    body: bytes
    """Body for a client that speaks this dialect; empty after a stream."""
    prompt_token_ids: TokenIds | None
    actions: list[Action]
    """[num_choices]."""
    usage: EngineUsage | None = None
    stop_reason: str | int | None = None
    """Which stop text or token ended the first choice."""
    shown_logprobs: list[msgspec.Raw] = []
    """Those of the first choice as the engine wrote them, where a translated answer shows them."""
    findings: list[str] = []
    """Members that could not be read, and those that do not agree."""


class _ShownLogprobs(msgspec.Struct, gc=False):
    content: list[msgspec.Raw] | None = None


_SHOWN: Final = msgspec.json.Decoder(_ShownLogprobs | None)


class MemberReader:
    """Reads members of answers one by one, and keeps the names of those that cannot be read."""

    def __init__(self) -> None:
        self.unread: dict[str, None] = {}

    def read(self, name: str, decoder: msgspec.json.Decoder[T], value: msgspec.Raw) -> T | None:
        """Return a member; None: it is absent, or cannot be read."""
        if not value:
            return None
        try:
            return decoder.decode(value)
        except UNREADABLE:
            self.unread[name] = None
            return None

    def read_ids(self, name: str, value: msgspec.Raw) -> TokenIds | None:
        """Return token ids; None: they are absent, or one of them is none."""
        return self.as_ids(name, self.read(name, _IDS, value))

    def as_ids(self, name: str, ids: list[int] | None) -> TokenIds | None:
        """Return ids in their recorded form; None: there are none, or one of them is no id."""
        try:
            return None if ids is None else TokenIds(ids)
        except OverflowError:
            self.unread[name] = None
            return None

    def read_shown(self, logprobs: msgspec.Raw) -> list[msgspec.Raw]:
        """Cut the log-probabilities of a choice, or of a chunk of it, into those of its tokens."""
        return (self.read("logprobs", _SHOWN, logprobs) or _ShownLogprobs()).content or []

    @property
    def findings(self) -> list[str]:
        """Of what could not be read."""
        return [f"{UNREAD}:{name}" for name in self.unread]


_IDS: Final = msgspec.json.Decoder(list[TokenId] | None)
_LOGPROBS: Final = msgspec.json.Decoder(LogprobList | None)
_FILE: Final = msgspec.json.Decoder(bytes | None)
_USAGE: Final = msgspec.json.Decoder(EngineUsage | None)
_INDEX: Final = msgspec.json.Decoder(int)
_REASON: Final = msgspec.json.Decoder(str | None)
_STOP: Final = msgspec.json.Decoder(str | int | None)
_COMPLETION: Final = msgspec.json.Decoder(_Completion)


def read_answer(body: bytes, request: ChatRequest, version: int, num_choices: int = 1) -> ChatAnswer:
    """Read the engine's whole answer. What the client gets is recorded as far as it can be read.

    Args:
        body: JSON text.
        request: what the client asked, which decides what it gets back.
        version: policy version that the engine serves.
        num_choices: that the engine was asked for.

    Raises: EngineError: it is no chat completion.
    """
    body = mend_surrogates(body)  # the client's and the record's alike
    try:
        answer = _COMPLETION.decode(body)
    except UNREADABLE as error:
        raise EngineError(
            f"engine's answer: expected a chat completion, found {describe_garbage(body)} ({error}); is it an"
            " OpenAI-compatible server?"
        ) from error
    reader = MemberReader()
    choices = {at: reader.read("index", _INDEX, choice.index) for at, choice in enumerate(answer.choices)}
    indices = [at if index is None else index for at, index in choices.items()]
    in_order = [choice for _, choice in sorted(zip(indices, answer.choices, strict=True), key=lambda one: one[0])]
    actions = [_read_action(choice, version, reader) for choice in in_order]
    prompt = reader.read_ids("prompt_token_ids", answer.prompt_token_ids)
    usage = reader.read("usage", _USAGE, answer.usage)
    return ChatAnswer(
        body=hide_values(body, _hidden(answer, request)),
        prompt_token_ids=prompt,
        actions=actions,
        usage=usage,
        stop_reason=reader.read("stop_reason", _STOP, in_order[0].stop_reason),
        shown_logprobs=reader.read_shown(in_order[0].logprobs) if request.shows_logprobs else [],
        findings=[*reader.findings, *check_agreement(prompt, actions, usage, sorted(indices), num_choices)],
    )


def check_agreement(
    prompt: TokenIds | None, actions: Sequence[Action], usage: EngineUsage | None, indices: list[int], num_choices: int
) -> list[str]:
    """Compare what one answer says about itself; what it does not say agrees with everything.

    Args:
        prompt: its ids; None: not known.
        actions: [num_choices], as they came.
        usage: what the engine counted.
        indices: numbers of the choices, sorted.
        num_choices: that the engine was asked for.

    Returns: findings: usage without its counts, and what does not agree with the ids.
    """
    ids = [action.response_token_ids for action in actions]
    num_sampled = sum(len(one) for one in ids if one is not None)
    counts = usage or EngineUsage()
    unsaid = [f"{UNREAD}:usage"] if usage and None in (usage.prompt_tokens, usage.completion_tokens) else []
    doubts = {
        "choices": indices != list(range(max(1, num_choices))),
        "logprobs": any(
            action.logprobs is not None and len(action.logprobs) > len(action.response_token_ids or ())
            for action in actions
            if action.response_token_ids is not None
        ),
        "message": any(one == _NO_IDS and _says_something(action) for one, action in zip(ids, actions, strict=True)),
        "usage": (prompt is not None and counts.prompt_tokens not in (None, len(prompt)))
        or (None not in ids and counts.completion_tokens not in (None, num_sampled)),
    }
    return [*unsaid, *(f"{DISAGREES}:{name}" for name, is_found in doubts.items() if is_found)]


_NO_IDS: Final = TokenIds()


def _says_something(action: Action) -> bool:
    message = action.message or {}
    return any(message.get(name) for name in ("content", "reasoning", "reasoning_content", "tool_calls"))


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


def _read_action(choice: _Choice, version: int, reader: MemberReader) -> Action:
    ids, found = reader.read_ids("token_ids", choice.token_ids), reader.read("logprobs", _LOGPROBS, choice.logprobs)
    logprobs = None if found is None or found.content is None else Logprobs(found.values)
    reason = reader.read("finish_reason", _REASON, choice.finish_reason)
    action = build_action(choice.message, ids, logprobs, reason, version)
    routed = reader.read("routed_experts", _FILE, choice.routed_experts)
    return action if routed is None else msgspec.structs.replace(action, arrays={"routed_experts": routed})


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
