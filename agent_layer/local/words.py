"""This file holds the scripted engine's tokenizer: one token per word, ids that anyone can recompute.

A conversation is rendered message by message, ``<role> word … <end>``, and a prompt ends with ``<assistant>``. An
answer is ``word … <end>``. So the prompt of the next turn begins with the prompt and the answer of this one.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from agent_layer.schema.untrusted import object_of, objects_of

__all__ = ["END", "call_words", "id_of", "logprob_of", "prompt_words", "thought_words", "words_of"]

END = "<end>"


def id_of(word: str) -> int:
    """Token id of a word: 31 bits of its CRC-32."""
    return zlib.crc32(word.encode()) & 0x7FFFFFFF


def logprob_of(token_id: int) -> float:
    """Log-probability that the engine claims for a token: between -2 and 0, a function of its id."""
    return -(token_id % 2000) / 1000


def prompt_words(messages: Iterable[Mapping[str, object]], tools: object = None) -> list[str]:
    """Render a conversation, ready to be answered."""
    words = ["<tools>", *_canonical(tools).split(), END] if tools else []
    for message in messages:
        words += [f"<{message.get('role', 'user')}>", *words_of(message), END]
    return [*words, "<assistant>"]


def words_of(message: Mapping[str, object]) -> list[str]:
    """Words of one message: its thoughts, its text, its tool calls, whose arguments are put into one canonical form."""
    said = _text_of(message.get("content")).split()
    return [*thought_words(message.get("reasoning")), *said, *call_words(message.get("tool_calls"))]


def thought_words(thought: object) -> list[str]:
    """Words of what was thought before anything was said."""
    return ["<think>", *str(thought).split(), "</think>"] if thought else []


def _text_of(content: object) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in objects_of(cast("object", content)))
    return str(content or "")


def call_words(calls: object) -> Iterator[str]:
    """Words of tool calls; arguments that are no JSON are spoken as they are."""
    for call in objects_of(calls):
        function = object_of(call.get("function"))
        arguments = _canonical_text(str(function.get("arguments") or "{}"))
        yield from ("<tool_call>", str(function.get("name")), *arguments.split(), "</tool_call>")


def _canonical_text(arguments: str) -> str:
    try:
        return _canonical(json.loads(arguments))
    except (ValueError, RecursionError):
        return arguments


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)
