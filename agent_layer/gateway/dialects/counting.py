"""This file holds how the tokens of a prompt are counted: vLLM's ``/tokenize`` is asked, and nothing is sampled."""

from typing import Final

import msgspec

from agent_layer.errors import EngineError
from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.refusals import sentence_of
from agent_layer.schema.untrusted import UNREADABLE

__all__ = ["counting_body", "read_count"]

_SHAPING: Final = ("messages", "tools", "chat_template_kwargs")


def counting_body(request: ChatRequest, model: str) -> bytes:
    """Ask for the tokens of this request's prompt."""
    pieces = {name: request.pieces[name] for name in _SHAPING if name in request.pieces}
    return msgspec.json.encode({**pieces, "model": model, "add_generation_prompt": True})


def read_count(url: str, status: int, body: bytes) -> int:
    """Read how many there are.

    Raises: EngineError: the engine does not say.
    """
    try:
        return _COUNT.decode(body).count
    except UNREADABLE as error:
        raise EngineError(
            f"engine {url}: expected the number of tokens of a prompt, found status {status}, {sentence_of(body)[1]!r};"
            " it may have no /tokenize"
        ) from error


class _Count(msgspec.Struct):
    count: int


_COUNT: Final = msgspec.json.Decoder(_Count)
