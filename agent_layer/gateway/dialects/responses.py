"""This file holds the dialect of OpenAI's responses API: ``/v1/responses``."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from agent_layer.errors import NotFoundError
from agent_layer.gateway.dialects.blocks import Block, message_of
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.dialect import Exchange
from agent_layer.gateway.dialects.responses_request import read_responses
from agent_layer.gateway.dialects.responses_writer import ResponseWriter
from agent_layer.gateway.dialects.shelf import TextShelf
from agent_layer.gateway.dialects.translated_stream import TranslatedStream
from agent_layer.gateway.dialects.turns import encoded

__all__ = ["Responses"]


class _Said(msgspec.Struct, array_like=True):
    """What a response added to its conversation."""

    before: str | None
    """The response that it continues."""
    messages: list[msgspec.Raw]


@dataclass(kw_only=True)
class Responses:
    """OpenAI's responses. What was said is remembered for ``previous_response_id``, within its rollout."""

    shelf: TextShelf = field(default_factory=TextShelf)

    def read(self, body: bytes, trajectory_id: str) -> ChatRequest:
        """Read a client's body."""
        return read_responses(body, lambda response_id: self._talk_of(trajectory_id, response_id))

    def write(self, answer: ChatAnswer, exchange: Exchange) -> bytes:
        """Give the response."""
        return msgspec.json.encode(ResponseWriter(exchange, self._keep).whole(answer))

    def stream(self, exchange: Exchange) -> TranslatedStream:
        """Begin a streamed response."""
        return TranslatedStream(
            ResponseWriter(exchange, self._keep), exchange.num_choices, exchange.request.shows_logprobs
        )

    def _keep(self, exchange: Exchange, blocks: list[Block]) -> None:
        """Remember what a response adds to the one that it continues: the input, and the answer."""
        asked = _ASKED.decode(msgspec.json.encode(exchange.request.asked))
        if asked.store is False:
            return
        before = asked.previous_response_id
        num_before = len(self._talk_of(exchange.trajectory_id, before)) if before else 0
        added = exchange.request.messages[num_before + bool(asked.instructions) :]
        said = _Said(before, [*added, encoded(message_of(blocks))])
        self.shelf.keep((exchange.trajectory_id, f"resp_{exchange.call_id}"), msgspec.json.encode(said))

    def _talk_of(self, trajectory_id: str, response_id: str) -> Sequence[msgspec.Raw]:
        """Give all messages up to and with a response's answer, without the instructions."""
        turns: list[list[msgspec.Raw]] = []
        name: str | None = response_id
        while name is not None:
            if (found := self.shelf.find((trajectory_id, name))) is None:
                raise NotFoundError(
                    f"response {name}: expected it in this rollout, but it is not remembered (any more); send the"
                    " conversation as input instead of previous_response_id"
                )
            said = _SAID.decode(found)
            turns.append(said.messages)
            name = said.before
        return [message for turn in reversed(turns) for message in turn]


class _Asked(msgspec.Struct):
    store: bool | None = None
    previous_response_id: str | None = None
    instructions: str | None = None


_ASKED = msgspec.json.Decoder(_Asked)
_SAID = msgspec.json.Decoder(_Said)
