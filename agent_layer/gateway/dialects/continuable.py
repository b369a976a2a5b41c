"""This file holds which requests may be continued from token ids, and the request that continues one.

An engine continues text, not messages: whatever it would have to know of what it said before, or would make of it
afterwards, keeps a request from being continued. Then its engine is waited for.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.schema.record import JsonObject
from agent_layer.schema.untrusted import UNREADABLE

__all__ = ["StreamOptions", "continuing_body", "may_be_continued", "stream_options_of"]

_SAME: Final = frozenset(
    {"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "stop_token_ids", "ignore_eos"}
    | {"skip_special_tokens"}
)
"""Means the same for a text as for a chat, and the same in its middle as at its beginning."""
_LENGTHS: Final = ("max_completion_tokens", "max_tokens")
"""In the order in which engines prefer them."""
_KNOWN: Final = _SAME.union(_LENGTHS, ("n", "chat_template_kwargs"))
_NONE: Final = (b"null", b"0", b"[]")


def may_be_continued(request: ChatRequest, sampling: JsonObject) -> bool:
    """Whether an answer to this request can be continued from what was sampled of it.

    Args:
        request: what is asked.
        sampling: what the engine is asked for in the end.
    """
    is_known = all(name in _KNOWN or value is None for name, value in sampling.items())
    is_one = sampling.get("n") in (None, 1)
    is_bare = all(bytes(request.pieces.get(name, b"null")) in _NONE for name in ("tools", "top_logprobs"))
    return is_known and is_one and is_bare and _limit_of(sampling) is not None and _is_read_at_its_end(request)


def _limit_of(sampling: Mapping[str, object]) -> int | None:
    """Most tokens that may be sampled; None: as many as there is room for, which a completion cannot be asked for."""
    found = [sampling[name] for name in _LENGTHS if sampling.get(name) is not None]
    return found[0] if found and isinstance(found[0], int) else None


def continuing_body(
    model: str, sampling: Mapping[str, object], prompt: list[int], sampled: list[int], *, with_usage: bool
) -> bytes:
    """Body that asks for the rest of an answer.

    Args:
        model: its name at the engine.
        sampling: of the whole answer.
        prompt: ids that the chat was rendered to.
        sampled: ids that were answered.
        with_usage: the stream is to end with what was used.
    """
    told: JsonObject = {name: value for name, value in sampling.items() if name in _SAME}
    told |= {"model": model, "prompt": [*prompt, *sampled], "stream": True, "return_token_ids": True, "logprobs": 0}
    told |= {"max_tokens": (_limit_of(sampling) or 0) - len(sampled)}
    return msgspec.json.encode(told | ({"stream_options": {"include_usage": True}} if with_usage else {}))


class StreamOptions(msgspec.Struct):
    """What a stream is to tell besides."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


def stream_options_of(request: ChatRequest) -> StreamOptions:
    """Raises: UNREADABLE: they are something else."""
    return _OPTIONS.decode(request.pieces.get("stream_options", b"null")) or StreamOptions()


class _Part(msgspec.Struct):
    type: str = "text"


class _Message(msgspec.Struct):
    content: str | list[_Part] | None = None


_OPTIONS: Final = msgspec.json.Decoder(StreamOptions | None)
_MESSAGE: Final = msgspec.json.Decoder(_Message)


def _is_read_at_its_end(request: ChatRequest) -> bool:
    """Whether token ids are all that an engine must know of the messages, and usage is told at the end."""
    try:
        if stream_options_of(request).continuous_usage_stats:
            return False
        contents = [_MESSAGE.decode(message).content for message in request.messages]
    except UNREADABLE:
        return False
    return all(part.type == "text" for content in contents if isinstance(content, list) for part in content)
