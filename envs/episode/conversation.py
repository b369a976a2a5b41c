"""The messages of one episode, and how many tokens they have.

Engines count tokens exactly, but only after a call. Between two calls the new messages are estimated, rather too long
than too short, and corrected as soon as the engine counted them.

    head     messages before the first answer; always kept
    middle   answers and observations that may make room
    tail     the newest answer, and the observations that follow it; always kept
"""

from collections.abc import Sequence
from typing import cast

import msgspec

from agent_layer.schema import JsonObject, as_json_objects
from envs.tokens import estimate_tokens

DROPPED = "[observation dropped to make room]"
_MESSAGE_TOKENS = 8
"""Tokens of a message's frame, at most in common templates."""
_IMAGE_TOKENS = 1_500
"""Until the engine counted them."""


class Message(msgspec.Struct):
    """One message, and its share of the prompt."""

    body: JsonObject
    num_tokens: int
    is_answer: bool = False
    is_counted: bool = False
    """The engine counted it."""


class Prompt(msgspec.Struct, frozen=True):
    """Messages of one request."""

    messages: list[JsonObject]
    num_tokens: int
    """Partly estimated."""


class Conversation:
    """What the next call asks.

    Args:
        tools: tool definitions as the engine reads them.
    """

    def __init__(self, tools: Sequence[JsonObject]) -> None:
        self._messages: list[Message] = []
        self._base = _estimate_json(tools) if tools else 0
        """Tokens that belong to no message."""

    @property
    def prompt(self) -> Prompt:
        """All messages."""
        return Prompt([message.body for message in self._messages], self.num_tokens)

    @property
    def num_tokens(self) -> int:
        """Tokens of a prompt of all messages, partly estimated."""
        return self._base + sum(message.num_tokens for message in self._messages)

    def add(self, *bodies: JsonObject) -> None:
        """Add observations."""
        self._messages += [Message(body, _estimate_message(body)) for body in bodies]

    def add_answer(self, body: JsonObject, num_prompt: int | None, num_sampled: int | None) -> None:
        """Add an answer of the model.

        Args:
            body: the assistant message.
            num_prompt: tokens of the messages so far, as the engine counted them; None: it did not.
            num_sampled: tokens of the answer.
        """
        if num_prompt is not None:
            self._correct(num_prompt)
        estimated = _estimate_message(body) if num_sampled is None else num_sampled + _MESSAGE_TOKENS
        self._messages.append(Message(body, estimated, is_answer=True))

    def drop_observations(self, max_tokens: int) -> bool:
        """Replace the oldest observations of the middle by a note, until the rest fits.

        Returns: whether anything was dropped.
        """
        num_dropped = 0
        for message in self._middle:
            if self.num_tokens <= max_tokens:
                break
            if not message.is_answer and message.body.get("content") != DROPPED:
                message.body = {**message.body, "content": DROPPED}
                message.num_tokens = min(message.num_tokens, _estimate_message(message.body))
                message.is_counted = False
                num_dropped += 1
        return num_dropped > 0

    def summary_prompt(self, instruction: str) -> Prompt | None:
        """Return head and middle, and behind them the request to summarise; None: there is no middle."""
        if not self._middle:
            return None
        *before, last = kept = [*self._head, *self._middle]
        messages = [*(message.body for message in before), *_extend_user(last.body, instruction)]
        num_tokens = self._base + sum(message.num_tokens for message in kept)
        return Prompt(messages, num_tokens + _MESSAGE_TOKENS + estimate_tokens(instruction))

    def replace_middle(self, summary: str, num_tokens: int | None) -> None:
        """Put a text behind the head in place of the middle.

        Args:
            summary: the text.
            num_tokens: that it has; None: not known.
        """
        *before, last = self._head
        num_added = _MESSAGE_TOKENS + (estimate_tokens(summary) if num_tokens is None else num_tokens)
        (body,) = _extend_user(last.body, summary)  # the head ends with a message of the user
        self._messages = [*before, Message(body, last.num_tokens + num_added), *self._tail]
        for message in self._messages:
            message.is_counted = False

    @property
    def _head(self) -> list[Message]:
        return self._messages[: self._answer_places()[0]]

    @property
    def _middle(self) -> list[Message]:
        first, last = self._answer_places()
        return self._messages[first:last]

    @property
    def _tail(self) -> list[Message]:
        return self._messages[self._answer_places()[1] :]

    def _answer_places(self) -> tuple[int, int]:
        """Return where the first and the last answer stand; the end of the messages where there is none."""
        places = [place for place, message in enumerate(self._messages) if message.is_answer]
        return (places[0], places[-1]) if places else (len(self._messages), len(self._messages))

    def _correct(self, num_prompt: int) -> None:
        """Spread over the messages that were not counted before what the engine counted for them together."""
        fresh = [message for message in self._messages if not message.is_counted]
        estimated = sum(message.num_tokens for message in fresh)
        counted = num_prompt - (self.num_tokens - estimated)
        for message in fresh:
            message.num_tokens = max(1, message.num_tokens * counted // estimated)
            message.is_counted = True
        self._base += num_prompt - self.num_tokens


def _extend_user(body: JsonObject, text: str) -> list[JsonObject]:
    """Return the message with a text behind it; some templates take no two messages of the user in a row."""
    content = body.get("content")
    if body.get("role") != "user":
        return [body, {"role": "user", "content": text}]
    if isinstance(content, list):
        return [{**body, "content": [*content, {"type": "text", "text": text}]}]
    return [{**body, "content": f"{content}\n\n{text}"}]


def _estimate_message(body: JsonObject) -> int:
    content = body.get("content")
    if not isinstance(content, list):
        return _MESSAGE_TOKENS + _estimate_json({name: value for name, value in body.items() if name != "role"})
    parts = as_json_objects(cast("object", content))
    texts = [part for part in parts if part.get("type") == "text"]
    return _MESSAGE_TOKENS + _estimate_json(texts) + _IMAGE_TOKENS * (len(parts) - len(texts))


def _estimate_json(value: object) -> int:
    return estimate_tokens(msgspec.json.encode(value).decode())
