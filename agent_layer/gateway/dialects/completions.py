"""OpenAI's chat completions: what clients send is the gateway's internal form."""

import msgspec

from agent_layer.gateway.dialects.base import Exchange, LRUCache
from agent_layer.gateway.dialects.chat import ChatRequest, read_request
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.chat_stream import ChatStream


class Completions:
    """OpenAI's ``/v1/chat/completions``."""

    def read(self, body: bytes, memory: LRUCache) -> ChatRequest:  # noqa: ARG002  # nothing is remembered for it
        """Read a client's body."""
        request = read_request(body)
        if "function" not in request.roles:
            return request
        return msgspec.structs.replace(request, not_applied=[*request.not_applied, "messages.function"])

    def write(self, answer: ChatAnswer, exchange: Exchange) -> bytes:  # noqa: ARG002  # the body says it all
        """Return the engine's own body, without what was added for the record."""
        return answer.body

    def stream(self, exchange: Exchange) -> ChatStream:
        """Pass bytes on as they come."""
        return ChatStream(exchange.request, exchange.num_choices)
