"""OpenAI's responses API, ``/v1/responses``, translated from and to chat completions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects import response_memory
from agent_layer.gateway.dialects.base import Exchange, LRUCache
from agent_layer.gateway.dialects.chat import ChatRequest, build_request
from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.gateway.dialects.endings import find_failure
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.gateway.dialects.response_events import ResponseWriter, write_usage
from agent_layer.gateway.dialects.stream import EventLines, TranslatedStream, split_blocks
from agent_layer.gateway.dialects.turns import count_usage, translated
from agent_layer.schema import UNREADABLE, JsonObject, as_json_object, as_json_objects
from agent_layer.translation import ResolveItem, encoded, read_pieces, seal_reasoning, text_part, translate_responses

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


@dataclass(frozen=True, kw_only=True)
class SocketResponses:
    """Responses on a socket: its messages have a type and no form of their own, and its events are lines of JSON.

    See https://developers.openai.com/api/docs/guides/websocket-mode.
    """

    socket: str
    """Name of the socket."""
    stream_id: str | None
    """The client's name of the stream on it; None: the only one."""

    def read(self, body: bytes, memory: LRUCache) -> ChatRequest:
        """Read a message."""
        try:
            pieces = {name: piece for name, piece in read_pieces(body).items() if name not in _OF_SOCKETS}
        except UNREADABLE as error:
            raise BadInputError(f"responses message: expected a JSON object, found {error}; correct it") from error
        return read_responses(
            msgspec.json.encode({**pieces, "stream": True}),
            lambda response_id: response_memory.read_conversation(memory, response_id, self.socket),
            lambda item: response_memory.resolve_item(memory, item),
        )

    def write(self, answer: ChatAnswer, exchange: Exchange) -> bytes:
        """Return the events of an answer that its engine did not stream."""
        writer = ResponseWriter(exchange, self.socket)
        return self.form.write(writer.finish(answer, split_blocks(answer.actions[0].message or {})))

    def stream(self, exchange: Exchange) -> TranslatedStream:
        """Begin a response."""
        writer = ResponseWriter(exchange, self.socket)
        return TranslatedStream(writer, exchange.num_choices, exchange.request.shows_logprobs, self.form)

    def warm_up(self, exchange: Exchange) -> bytes:
        """Return the events of a message that only prepares the next ones."""
        return self.form.write(ResponseWriter(exchange, self.socket).warm_up())

    @property
    def form(self) -> EventLines:
        """How events are written."""
        return EventLines({} if self.stream_id is None else {"stream_id": self.stream_id})


_OF_SOCKETS: Final = frozenset({"type", "stream_id", "generate", "stream", "stream_options"})


class Compaction(Responses):
    """OpenAI's ``/v1/responses/compact``: the policy writes a summary, which takes the place of a conversation.

    The question is the gateway's, so it is a side call. The seal of the summary is its text in base64, no secret.
    """

    def read(self, body: bytes, memory: LRUCache) -> ChatRequest:
        """Read a client's body."""
        request = super().read(body, memory)
        question = encoded({"role": "user", "content": _SUMMARISE})
        messages = [*request.messages, question]
        pieces = {name: piece for name, piece in request.pieces.items() if name not in _NOT_COMPACTED}
        pieces["messages"] = msgspec.Raw(msgspec.json.encode(messages))
        rebuilt = build_request(
            pieces, messages, client_fields=request.client_fields, sampling_asked=request.sampling_asked
        )
        return msgspec.structs.replace(
            rebuilt,
            not_applied=request.not_applied,
            findings=request.findings,
            is_respelled=request.is_respelled,
            side_call="compact",
        )

    def write(self, answer: ChatAnswer, exchange: Exchange) -> bytes:
        """Return the messages of the user, and the summary in the place of all others.

        Raises: RefusedError: there is no summary, so nothing may be replaced by it.
        """
        if (error := find_failure(answer)) is not None:
            raise RefusedError(502, "engine_failed", f"compaction: {error}; ask again")
        request = exchange.request
        spoken = [request.message(at) for at, role in enumerate(request.roles[:-1]) if role == "user"]
        output: list[JsonObject] = [
            {
                "id": f"msg_{exchange.call_id}_{at}",
                "type": "message",
                "role": "user",
                "status": "completed",
                "content": _shown_parts(message.get("content")),
            }
            for at, message in enumerate(spoken)
        ]
        text = str((answer.actions[0].message or {}).get("content") or "")
        if not text.strip():
            raise RefusedError(502, "no_summary", "compaction: expected a text of the model, found none; ask again")
        sealed = {"id": f"cmp_{exchange.call_id}", "type": "compaction", "encrypted_content": seal_reasoning(text)}
        return msgspec.json.encode(
            {
                "id": f"resp_{exchange.call_id}",
                "object": "response.compaction",
                "created_at": exchange.at,
                "output": [*output, sealed],
                "usage": write_usage(count_usage(answer)),
            }
        )


_NOT_COMPACTED: Final = frozenset({"tool_choice", "parallel_tool_calls", "response_format", "stream", "stream_options"})
_SUMMARISE: Final = (
    "Summarise the conversation so far for yourself: it will be replaced by your summary and the user's messages, and"
    " you will go on from these alone. Say what the task is, what was done and found, what was decided and why, which"
    " files, names and values matter, and what is left to do. Write only the summary, and call no tool."
)


def _shown_parts(content: object) -> list[JsonObject]:
    """Return the content of a chat message as parts of an input item."""
    parts = as_json_objects([text_part(content)] if isinstance(content, str) else content)
    return [_shown_part(part) for part in parts]


def _shown_part(part: JsonObject) -> JsonObject:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "input_text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            detail = as_json_object(part["image_url"]).get("detail") or "auto"
            return {"type": "input_image", "image_url": url, "detail": detail}
        case {"type": "file", "file": dict()}:
            return {"type": "input_file", **as_json_object(part["file"])}
        case _:
            return part
