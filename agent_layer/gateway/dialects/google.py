"""Google's Gemini API, ``models/{model}:generateContent`` and its streams, translated from and to chat completions."""

from dataclasses import dataclass

import msgspec

from agent_layer.gateway.dialects.base import Exchange, LRUCache
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.google_answer import AnswerWriter, EventArray, PlainEvents
from agent_layer.gateway.dialects.stream import TranslatedStream
from agent_layer.gateway.dialects.turns import translated
from agent_layer.translation import find_counted, translate_google

EVENT_STREAM, JSON_ARRAY = "text/event-stream", "application/json"
"""Forms of a streamed answer: ``?alt=sse``, and without it."""


@dataclass(frozen=True, kw_only=True)
class Google:
    """Google's dialect, for one request: model and form of the answer are in its address."""

    model: str
    stream_type: str | None = None
    """Content type of a streamed answer; None: it comes whole."""
    is_counted: bool = False
    """The prompt is only to be counted."""

    def read(self, body: bytes, memory: LRUCache) -> ChatRequest:  # noqa: ARG002  # nothing is remembered for it
        """Read a client's body."""
        return read_google(find_counted(body) if self.is_counted else body, self.model, self.stream_type)

    def write(self, answer: ChatAnswer, exchange: Exchange) -> bytes:
        """Return the response."""
        return msgspec.json.encode(AnswerWriter(exchange).whole(answer))

    def stream(self, exchange: Exchange) -> TranslatedStream:
        """Begin a streamed response."""
        form = EventArray() if self.stream_type == JSON_ARRAY else PlainEvents()
        request = exchange.request
        return TranslatedStream(AnswerWriter(exchange), exchange.num_choices, request.shows_logprobs, form=form)


def read_google(body: bytes, model: str, stream_type: str | None = None) -> ChatRequest:
    """Read a client's body.

    Args:
        body: JSON text.
        model: named by the address.
        stream_type: content type of a streamed answer; None: it comes whole.

    Raises: BadInputError: it is no such request, or has what a chat completion has no place for.
    """
    request = translated(translate_google(body, model, is_streamed=stream_type is not None))
    return request if stream_type is None else msgspec.structs.replace(request, stream_type=stream_type)
