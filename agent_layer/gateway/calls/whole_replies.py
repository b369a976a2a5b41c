"""Answers of engines that are asked whole (``EngineKind.streams_ids``), in the gateway's own words.

SGLang names some members otherwise than vLLM (``python/sglang/srt/entrypoints/openai/protocol.py``, version 0.5.23):
each choice has the ids of the prompt, and the sampled ones as ``response_token_ids``. A client that reads a stream gets
the answer as the events that vLLM would have sent, once it is whole.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from agent_layer.errors import EngineError
from agent_layer.gateway.calls.delivery import Reply
from agent_layer.gateway.calls.requests import in_background
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.continuation import read_stream_options
from agent_layer.gateway.dialects.refusals import describe_garbage
from agent_layer.schema import UNREADABLE, JsonObject, as_json_object, as_json_objects, mend_surrogates

_STREAM: Final = "text/event-stream"
_Members: TypeAlias = dict[str, msgspec.Raw]
_MEMBERS: Final = msgspec.json.Decoder(_Members)
_CHOICES: Final = msgspec.json.Decoder(list[_Members])
_OBJECT: Final = msgspec.json.Decoder(JsonObject)
_NULL: Final = msgspec.Raw(b"null")
_OUR_NAMES: Final = {"response_token_ids": "token_ids", "matched_stop": "stop_reason"}
_PROMPT: Final = "prompt_token_ids"
_EXTENSION: Final = "sglext"
"""What servers add that were started with --return-input-ids or --return-output-ids."""
_FIRST_MEMBERS: Final = ("reasoning_content", "reasoning", "content")
"""Members of a message, in the order in which they were sampled."""


@dataclass(frozen=True)
class WholeReply:
    """A whole answer, for a client that reads it whole or as a stream."""

    reply: Reply
    request: ChatRequest
    """What the client asks."""

    @property
    def status(self) -> int:
        """See Reply."""
        return self.reply.status

    @property
    def content_type(self) -> str:
        """What the client asked for, not what the engine was asked for."""
        return _STREAM if self.request.is_streamed and self.status == 200 else self.reply.content_type

    async def read(self) -> bytes:
        """See Reply."""
        body = await self.reply.read()
        return await in_background(len(body), lambda: translate_answer(body)) if self.status == 200 else body

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield all events at once.

        Raises: EngineError: the engine broke off or took too long, or sent no chat completion.
        """
        body, with_usage = await self.read(), False
        with suppress(*UNREADABLE):
            with_usage = read_stream_options(self.request).include_usage
        yield await in_background(len(body), lambda: write_events(body, with_usage=with_usage))


def translate_answer(body: bytes) -> bytes:
    """Return a whole answer with the members that vLLM's has. What is no chat completion stays as it is."""
    try:
        answer = _MEMBERS.decode(body)
        choices = _CHOICES.decode(answer.get("choices", _NULL))
    except UNREADABLE:
        return body
    prompts = {bytes(prompt): prompt for choice in choices if (prompt := choice.pop(_PROMPT, None)) is not None}
    renamed = [{_OUR_NAMES.get(name, name): piece for name, piece in choice.items()} for choice in choices]
    answer["choices"] = msgspec.Raw(msgspec.json.encode(renamed))
    answer.pop(_EXTENSION, None)
    if len(prompts) == 1:  # one prompt: with several it is not known which the record would continue
        answer[_PROMPT] = next(iter(prompts.values()))
    return msgspec.json.encode(answer)


def write_events(body: bytes, *, with_usage: bool) -> bytes:
    """Return a translated answer as a stream: what each choice says, then its ids, log-probabilities and end.

    Raises: EngineError: it is no chat completion.
    """
    answer: JsonObject = {}
    with suppress(*UNREADABLE):
        answer = _OBJECT.decode(mend_surrogates(body))
    if not (choices := as_json_objects(answer.get("choices"))):
        raise EngineError(
            f"engine's answer: expected a chat completion, found {describe_garbage(body)}; is it an OpenAI-compatible"
            " server?"
        )
    head = {name: answer.get(name) for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    events: list[JsonObject] = [head | {"choices": [one]} for choice in choices for one in _split_choice(choice)]
    events[0][_PROMPT] = answer.get(_PROMPT)
    if with_usage:
        events.append(head | {"choices": [], "usage": answer.get("usage")})
    return b"".join([b"data: %b\n\n" % msgspec.json.encode(event) for event in events]) + b"data: [DONE]\n\n"


def _split_choice(choice: JsonObject) -> Iterator[JsonObject]:
    """Yield a choice as those of its chunks."""
    message, index = as_json_object(choice.get("message")), choice.get("index", 0)
    deltas: list[JsonObject] = [{"role": message.get("role", "assistant")}]
    names = sorted(message.keys() - {"role", "tool_calls"}, key=_place)
    deltas += [{name: message[name]} for name in names if message[name] is not None]
    calls = as_json_objects(message.get("tool_calls"))
    for place, call in enumerate(calls):
        deltas.append({"tool_calls": [call | {"index": place}]})
    for delta in deltas:
        yield {"index": index, "delta": delta, "finish_reason": None}
    rest = {name: value for name, value in choice.items() if name != "message"}
    yield {"finish_reason": None} | rest | {"delta": {}}


def _place(name: str) -> tuple[int, str]:
    return _FIRST_MEMBERS.index(name) if name in _FIRST_MEMBERS else len(_FIRST_MEMBERS), name
