"""OpenAI's responses API, ``/v1/responses``, translated from and to chat completions."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from agent_layer.gateway.dialects import response_memory
from agent_layer.gateway.dialects.base import Exchange, LRUCache
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.response_events import ResponseWriter
from agent_layer.gateway.dialects.stream import TranslatedStream
from agent_layer.gateway.dialects.turns import translated
from agent_layer.translation import ResolveItem, translate_responses

ReadConversation: TypeAlias = Callable[[str], Sequence[msgspec.Raw]]
"""Response id → all messages up to and with that answer."""


def read_responses(body: bytes, read_conversation: ReadConversation, resolve_item: ResolveItem) -> ChatRequest:
    """Read a client's body.

    Args:
        body: JSON text.
        read_conversation: finds what a previous response continued and said.
        resolve_item: finds the item that an ``item_reference`` names.

    Raises: BadInputError: it is no such request, or has what a chat completion has no place for.
    """
    request = translate_responses(body, resolve_item)
    return translated(request, read_conversation(request.continues) if request.continues else ())


class Responses:
    """OpenAI's responses. Each is remembered with its rollout: for ``previous_response_id``, and by its items."""

    def read(self, body: bytes, memory: LRUCache) -> ChatRequest:
        """Read a client's body."""
        return read_responses(
            body,
            lambda response_id: response_memory.read_conversation(memory, response_id),
            lambda item: response_memory.resolve_item(memory, item),
        )

    def write(self, answer: ChatAnswer, exchange: Exchange) -> bytes:
        """Return the response."""
        return msgspec.json.encode(ResponseWriter(exchange).whole(answer))

    def stream(self, exchange: Exchange) -> TranslatedStream:
        """Begin a streamed response."""
        return TranslatedStream(ResponseWriter(exchange), exchange.num_choices, exchange.request.shows_logprobs)
