"""The gateway's internal form of requests, chat completions, and what an engine is asked.

Every dialect is translated into it and back. Bodies are cut into raw JSON pieces, and only what the record needs is
decoded: messages and all fields that an engine may be asked for pass through byte for byte.

Tokens of a prompt are counted by vLLM's ``/tokenize``, which samples nothing.
"""

import re
from collections.abc import Mapping
from sys import intern
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.errors import BadInputError, EngineError
from agent_layer.gateway.dialects.refusals import read_engine_error
from agent_layer.schema import NOT_SAMPLING, UNREADABLE, JsonObject, check_storable, content_hash, find_media
from agent_layer.translation import Pieces, TextMemo, check_counts, is_harmless, read_pieces

_TRUE: Final = msgspec.Raw(b"true")
_NULL: Final = msgspec.Raw(b"null")
_LENGTHS: Final = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""Two names of one limit; engines prefer the second."""

Endpoint: TypeAlias = Literal["chat/completions", "completions", "embeddings"]
"""What an engine is asked by, below its ``/v1``."""
CHAT: Final = "chat/completions"

_NOT_REST = frozenset({"messages", "stream", "stream_options"})
_LONG: Final = frozenset({"messages", "tools"})
"""Members that a conversation repeats, and that are no sampling."""

ENGINE_FIELDS: Final = frozenset(
    """
    messages model stream stream_options tools tool_choice parallel_tool_calls

    frequency_penalty logit_bias logprobs max_completion_tokens max_tokens n presence_penalty reasoning_effort
    response_format seed stop temperature top_logprobs top_p

    allowed_token_ids bad_words guided_choice guided_grammar guided_json guided_regex ignore_eos include_reasoning
    include_stop_str_in_output length_penalty logprob_token_ids min_p min_tokens prompt_logprobs repetition_detection
    repetition_penalty return_token_ids return_tokens_as_token_ids routed_experts_prompt_start skip_special_tokens
    spaces_between_special_tokens stop_token_ids structured_outputs thinking_token_budget top_k truncate_prompt_tokens
    truncation_side use_beam_search

    add_generation_prompt add_special_tokens chat_template_kwargs continue_final_message documents echo

    ebnf json_schema no_stop_trim regex separate_reasoning stream_reasoning structural_tag
    """.split()  # noqa: SIM905  # a list of strings would take eighty lines
)
"""What an agent may ask of an engine: OpenAI's fields of chat completions that engines apply, vLLM's of an answer and
of a prompt, SGLang's. How an engine schedules, caches, transfers and loads is its operator's business."""

SIDE_FIELDS: Final[Mapping[Endpoint, frozenset[str]]] = {
    "completions": (ENGINE_FIELDS - {"messages", "tools", "tool_choice", "parallel_tool_calls", "top_logprobs"})
    | {"prompt", "suffix", "best_of"},
    "embeddings": frozenset({"model", "input", "encoding_format", "dimensions", "truncate_prompt_tokens"}),
}
"""The same at the endpoints that are asked for side calls only."""

_NOTHING: Final = (b"null", b"false", b"[]", b"{}", b'"disabled"')
"""Values with which a field asks for nothing."""
_MAX_NOTHING_BYTES: Final = 16
"""Longest such value, with spaces."""


class MessageFacts(msgspec.Struct, frozen=True, gc=False):
    """What the JSON text of a message holds."""

    hash: str
    """Content hash of the text."""
    role: str
    has_parts: bool
    """Its content is a list of parts."""
    has_files: bool
    """There may be data URLs in it."""
    media: tuple[str, ...]
    """See ``find_media``."""


class ToolFacts(msgspec.Struct, frozen=True, gc=False):
    """What the JSON text of a list of tools holds."""

    hash: str
    """Content hash of the text."""
    has_files: bool
    """There may be data URLs in it."""
    are_strict: bool
    """An engine may restrict the arguments of calls to a schema."""


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request."""

    pieces: Pieces
    messages: list[msgspec.Raw]
    """JSON texts, as sent."""
    facts: list[MessageFacts]
    """[num_messages], of each message."""
    roles: list[str]
    """[num_messages], role of each message."""
    tools: msgspec.Raw | None
    tool_facts: ToolFacts | None
    sampling: JsonObject
    """Everything that shapes the answer besides messages and tools."""
    sampling_asked: JsonObject
    """The same in the words of the client's dialect."""
    client_fields: Pieces
    """What the client sent, in its dialect."""
    wants_logprobs: bool
    wants_token_ids: bool
    shows_logprobs: bool = False
    """They belong into an answer that is translated."""
    wants_experts: bool
    is_respelled: bool = False
    """Clients of its dialect parse the arguments of tool calls, and write them again."""
    restored: list[str] = []
    """What the agent changed in the model's answers, and is here as it was sampled: ``tool_calls``, ``reasoning``."""
    endpoint: Endpoint = CHAT
    """Others than chat completions are asked in the client's own words; messages are what is recorded of these."""
    side_call: str | None = None
    """What makes it a side call, whatever role its client names; None: its caller decides."""
    stream_type: str = "text/event-stream"
    """Content type of a streamed answer."""
    not_applied: list[str] = []
    """Fields that no engine is sent, though they ask for something."""
    findings: list[str] = []
    """What the gateway changed before any engine is asked."""

    def for_engine(self, model: str, sampling: Mapping[str, object]) -> bytes:
        """Body for the engine: its model name, token ids and log-probabilities asked for, sampling overridden.

        Of the client's fields it has those that an agent may ask of an engine (``ENGINE_FIELDS``).
        """
        if self.endpoint != CHAT:
            fields = SIDE_FIELDS[self.endpoint]
            known = {name: piece for name, piece in self.client_fields.items() if name in fields}
            return _ENCODER.encode(
                _override(
                    {**known, "model": _raw(model)},
                    {name: value for name, value in sampling.items() if name in fields},
                )
            )
        known = {name: piece for name, piece in self.pieces.items() if name in ENGINE_FIELDS}
        return _ENCODER.encode(
            _override({**known, "model": _raw(model), "return_token_ids": _TRUE, "logprobs": _TRUE}, sampling)
        )

    def for_provider(self, model: str, sampling: Mapping[str, object]) -> bytes:
        """Body for a server of another party: sampling overridden, nothing added for the record."""
        fields = self.pieces if self.endpoint == CHAT else self.client_fields
        pieces = {name: piece for name, piece in fields.items() if name != "return_token_ids"}
        return _ENCODER.encode(_override({**pieces, "model": _raw(model)}, sampling))

    @property
    def is_prefilled(self) -> bool:
        """Whether the last message is the beginning of the answer."""
        return self.pieces.get("continue_final_message") == _TRUE and self.roles[-1:] == ["assistant"]

    @property
    def model(self) -> str:
        """Name of the model that the client asks for; empty where it names none."""
        try:
            return _NAME.decode(self.client_fields.get("model", b'""'))
        except UNREADABLE:
            return ""

    def rest(self) -> bytes:
        """Everything but the messages, and but the form in which the answer is to come."""
        return _ENCODER.encode({name: piece for name, piece in self.pieces.items() if name not in _NOT_REST})

    @property
    def has_tools(self) -> bool:
        """Whether the model may call tools."""
        return self.tools is not None and asks_something(self.tools)

    @property
    def is_streamed(self) -> bool:
        """Whether the answer is to come piece by piece."""
        return self.pieces.get("stream") == _TRUE

    def message(self, index: int) -> JsonObject:
        """One message."""
        return _MESSAGE.decode(self.messages[index])

    def with_messages(self, messages: list[msgspec.Raw], facts: list[MessageFacts]) -> "ChatRequest":
        """Return the request with other messages, which hold this."""
        pieces = self.pieces | {"messages": _raw(messages)}
        roles = [one.role for one in facts]
        return msgspec.structs.replace(self, pieces=pieces, messages=messages, facts=facts, roles=roles)


class _Message(msgspec.Struct):
    role: str = ""
    content: object = None


def _read_facts(name: str, message: msgspec.Raw) -> MessageFacts:
    # all of it: what cannot be read here could not be read after the engine has answered, or by readers of the store
    read, text = msgspec.convert(msgspec.json.decode(message), _Message), bytes(message)
    has_parts = isinstance(read.content, list)
    media = tuple(sorted(find_media(text))) if has_parts else ()
    return MessageFacts(name, intern(read.role), has_parts, _FILE in text, media)


def _read_tool_facts(name: str, tools: msgspec.Raw) -> ToolFacts:
    msgspec.json.decode(tools)
    return ToolFacts(name, _FILE in bytes(tools), _STRICT.search(tools) is not None)


_FILE: Final = b";base64,"
_STRICT: Final = re.compile(rb'"strict"\s*:\s*true')
_FACTS: Final = TextMemo(_read_facts, measure=lambda facts: len(facts.role))
_TOOL_FACTS: Final = TextMemo(_read_tool_facts)


def find_facts(message: msgspec.Raw) -> MessageFacts:
    """Return what a message holds. One that was read before is not read again.

    Raises: UNREADABLE: it is no object, or its role is no text, or a number is out of range.
    """
    return _FACTS.find(content_hash(message), message)


_ENCODER: Final = msgspec.json.Encoder()
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_NAME: Final = msgspec.json.Decoder(str)
_MESSAGE: Final = msgspec.json.Decoder(JsonObject)


def read_request(body: bytes) -> ChatRequest:
    """Read a client's body.

    Raises: BadInputError: it is no JSON object with a list of messages, or an integer has more than 64 bits.
    """
    try:
        pieces = read_pieces(body)
        return build_request(pieces, _ITEMS.decode(pieces.get("messages", _NULL)))
    except UNREADABLE as error:
        raise BadInputError(
            f"chat request: expected a JSON object with a list of messages, found {error}; see OpenAI's chat API"
        ) from error


def build_request(
    pieces: Pieces,
    messages: list[msgspec.Raw],
    *,
    client_fields: Pieces | None = None,
    sampling_asked: JsonObject | None = None,
) -> ChatRequest:
    """Put a request together.

    Args:
        pieces: in the words of chat completions.
        messages: JSON texts.
        client_fields: what the client sent; None: the same.
        sampling_asked: the client's words for the sampling; None: the same.

    Raises:
        BadInputError: an integer that shapes the answer has more than 64 bits, or no engine can give ``n`` answers.
        UNREADABLE: a message is no object, or has no role, or a number anywhere is out of range.
    """
    values: JsonObject = {name: msgspec.json.decode(piece) for name, piece in pieces.items() if name not in _LONG}
    tools = pieces.get("tools")
    tool_facts = None if tools is None else _TOOL_FACTS.find(content_hash(tools), tools)
    wanted: JsonObject = {
        name: value
        for name, value in values.items()
        if name not in NOT_SAMPLING and not is_harmless(name, pieces[name])
    }
    check_storable([wanted, sampling_asked], "request")
    check_counts(wanted, "request")
    try:
        facts = [find_facts(message) for message in messages]
    except UNREADABLE:
        msgspec.json.decode(pieces["messages"], type=list[_Message])  # whose error says where
        raise
    return ChatRequest(
        pieces=pieces,
        messages=messages,
        facts=facts,
        roles=[one.role for one in facts],
        tools=tools,
        tool_facts=tool_facts,
        sampling={name: value for name, value in wanted.items() if name in ENGINE_FIELDS},
        sampling_asked=wanted if sampling_asked is None else sampling_asked,
        client_fields=pieces if client_fields is None else client_fields,
        wants_logprobs=pieces.get("logprobs") == _TRUE,
        wants_token_ids=pieces.get("return_token_ids") == _TRUE,
        wants_experts="routed_experts_prompt_start" in pieces,
        not_applied=sorted(
            name
            for name in pieces.keys() - ENGINE_FIELDS
            if asks_something(pieces[name]) and not is_harmless(name, pieces[name])
        ),
    )


def asks_something(piece: msgspec.Raw | None) -> bool:
    """Whether a member of a request has a value that asks for something."""
    if piece is None or memoryview(piece).nbytes > _MAX_NOTHING_BYTES:
        return piece is not None
    return bytes(piece).translate(None, b" \t\r\n") not in _NOTHING


def _override(pieces: Pieces, sampling: Mapping[str, object]) -> Pieces:
    """Put sampling in place of what a client asks; None leaves a field out."""
    named = {name: _raw(value) for name, value in sampling.items() if value is not None}
    overridden = {name: piece for name, piece in pieces.items() if name not in sampling} | named
    for name in sampling:
        if (other := _LENGTHS.get(name)) and other not in sampling:
            overridden.pop(other, None)
    return overridden


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_ENCODER.encode(value))


_SHAPING: Final = ("messages", "tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message")


def tokenize_body(request: ChatRequest, model: str) -> bytes:
    """Ask for the tokens of this request's prompt."""
    pieces = {name: request.pieces[name] for name in _SHAPING if name in request.pieces}
    return msgspec.json.encode({"add_generation_prompt": True, **pieces, "model": model})


def read_count(url: str, status: int, body: bytes) -> int:
    """Read how many there are.

    Raises: EngineError: the engine does not say.
    """
    try:
        return _COUNT.decode(body).count
    except UNREADABLE as error:
        raise EngineError(
            f"engine {url}: expected the number of tokens of a prompt, found status {status},"
            f" {read_engine_error(body)[1]!r}; check that it serves /tokenize"
        ) from error


class _Count(msgspec.Struct):
    count: int


_COUNT: Final = msgspec.json.Decoder(_Count)
