"""Answers in the words of Google's Gemini API, whole, as events, and as a list that grows."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from agent_layer.gateway.dialects.base import Exchange
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.endings import find_failure
from agent_layer.gateway.dialects.refusals import RefusedError, google_error
from agent_layer.gateway.dialects.stream import Block, Events, Kind, split_blocks
from agent_layer.gateway.dialects.turns import count_usage, show_sampled
from agent_layer.schema import JsonObject
from agent_layer.translation import Signature, find_finish, parse_arguments

_FAILED: Final = 502


class _ThinkingConfig(msgspec.Struct, rename="camel"):
    include_thoughts: bool = False


class _GenerationConfig(msgspec.Struct, rename="camel"):
    thinking_config: _ThinkingConfig | None = None


_CONFIG: Final = msgspec.json.Decoder(_GenerationConfig)


def _shows_thoughts(exchange: Exchange) -> bool:
    """Whether thoughts become parts; Google shows them to those who ask."""
    piece = exchange.request.client_fields.get("generationConfig", b"{}")
    return (_CONFIG.decode(piece).thinking_config or _ThinkingConfig()).include_thoughts


@dataclass(slots=True)
class AnswerWriter:
    """Writes one response, in one piece or in many, each with what is new."""

    exchange: Exchange
    _thoughts: list[str] = field(default_factory=list[str])
    _unsigned: set[Kind] = field(default_factory=set[Kind])
    """Kinds whose next part signs the thoughts."""

    def whole(self, answer: ChatAnswer) -> JsonObject:
        """Return the response.

        Raises: RefusedError: the engine says that its answer failed.
        """
        if (error := find_failure(answer)) is not None:
            raise RefusedError(_FAILED, "engine_failed", error)
        blocks = split_blocks(answer.actions[0].message or {})
        parts = [part for block in blocks for part in self._show(block, block.text)]
        return self._last(answer, parts)

    def start(self, num_prompt_tokens: int | None) -> Events:  # noqa: ARG002  # usage comes with the end
        """An answer comes: the first part will say so."""
        return []

    def begin(self, block: Block) -> Events:  # noqa: ARG002  # as above
        """A part begins."""
        return []

    def grow(self, block: Block, text: str) -> Events:
        """Text was added to it; a call is shown when it is whole."""
        return [] if block.kind == "call" else [self._piece([part]) for part in self._show(block, text)]

    def end(self, block: Block) -> Events:
        """It is whole."""
        return [self._piece(self._show(block, block.text))] if block.kind == "call" else []

    def finish(self, answer: ChatAnswer, blocks: list[Block]) -> Events:  # noqa: ARG002  # they are sent already
        """End the stream. Clients keep no turn whose last content is without parts."""
        return [self._last(answer, [])]

    def fail(self, code: str, message: str) -> Events:
        """The answer will not come."""
        return [google_error(_FAILED, code, message)]

    def _show(self, block: Block, text: str) -> list[JsonObject]:
        match block.kind:
            case "reasoning":
                self._thoughts.append(text)
                self._unsigned = {"text", "call"}
                return [{"text": text, "thought": True}] if _shows_thoughts(self.exchange) else []
            case "text":
                return [{"text": text, **self._sign("text")}]
            case "call":
                call = {"id": block.call_id, "name": block.name, "args": parse_arguments(text)}
                return [{"functionCall": call, **self._sign("call", block)}]

    def _sign(self, kind: Kind, call: Block | None = None) -> JsonObject:
        thought = "".join(self._thoughts) if kind in self._unsigned else ""
        self._unsigned.discard(kind)
        if call is not None:
            return {"thoughtSignature": Signature(thought, call.call_id, call.text).encode()}
        return {"thoughtSignature": Signature(thought).encode()} if thought else {}

    def _last(self, answer: ChatAnswer, parts: list[JsonObject]) -> JsonObject:
        is_signed = self._unsigned != {"text", "call"}
        if not parts or not is_signed:
            parts = [*parts, {"text": "", **({} if is_signed else self._sign("text"))}]
        reason = answer.actions[0].finish_reason if answer.actions else None
        ending = {"finishReason": find_finish(reason).google_reason, **_logprobs(answer)}
        sampled = show_sampled(answer, self.exchange.request)
        return {**self._piece(parts, ending), "usageMetadata": _usage(answer), **sampled}

    def _piece(self, parts: list[JsonObject], ending: JsonObject | None = None) -> JsonObject:
        candidate: JsonObject = {"content": {"role": "model", "parts": parts}, "index": 0, **(ending or {})}
        return {
            "candidates": [candidate],
            "modelVersion": self.exchange.model,
            "responseId": self.exchange.call_id,
        }


class _Token(msgspec.Struct):
    token: str = ""
    logprob: float = 0.0

    def show(self) -> JsonObject:
        return {"token": self.token, "logProbability": self.logprob}


class _SampledToken(_Token):
    top_logprobs: list[_Token] = []


_SAMPLED: Final = msgspec.json.Decoder(list[_SampledToken])


def _logprobs(answer: ChatAnswer) -> JsonObject:
    """Return the log-probabilities for a client that asked for them."""
    if not answer.shown_logprobs:
        return {}
    tokens = _SAMPLED.decode(msgspec.json.encode(answer.shown_logprobs))
    return {
        "avgLogprobs": sum(token.logprob for token in tokens) / len(tokens),
        "logprobsResult": {
            "chosenCandidates": [token.show() for token in tokens],
            "topCandidates": [{"candidates": [one.show() for one in token.top_logprobs]} for token in tokens],
        },
    }


def _usage(answer: ChatAnswer) -> JsonObject:
    usage = count_usage(answer)
    thought = usage.thought or 0
    counts: JsonObject = {
        "promptTokenCount": usage.prompt,
        "candidatesTokenCount": usage.sampled - thought,
        "totalTokenCount": usage.prompt + usage.sampled,
    }
    cached = {} if usage.cached is None else {"cachedContentTokenCount": usage.cached}
    return counts | cached | ({"thoughtsTokenCount": thought} if thought else {})


class PlainEvents:
    """Server-sent events without names, for ``?alt=sse``."""

    def write(self, events: Iterable[JsonObject]) -> bytes:
        """Return events as bytes."""
        return b"".join([b"data: %b\r\n\r\n" % msgspec.json.encode(one) for one in events])

    def end(self) -> bytes:
        """Nothing follows."""
        return b""


@dataclass(slots=True)
class EventArray:
    """A JSON list that grows by an item for each event; once it is closed, nothing follows."""

    _before: bytes = b"["
    _is_closed: bool = False

    def write(self, events: Iterable[JsonObject]) -> bytes:
        """Return events as items."""
        written = b""
        for one in () if self._is_closed else events:
            written += self._before + msgspec.json.encode(one)
            self._before = b",\r\n"
        return written

    def end(self) -> bytes:
        """Close the list."""
        opening = b"[" if self._before == b"[" else b""
        is_closed, self._is_closed = self._is_closed, True
        return b"" if is_closed else opening + b"]"
