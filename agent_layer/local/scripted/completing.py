"""Continuation of a scripted answer from its token ids, based on the chat that they came from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from agent_layer.errors import BadInputError
from agent_layer.local.scripted.script import token_logprob, word_token_id
from agent_layer.schema import JsonObject


@dataclass(kw_only=True)
class ReceivedCall:
    """One call as the engine received it; tests compare captured records with it."""

    body: JsonObject
    headers: dict[str, str]
    prompt_token_ids: list[int]
    token_ids: list[list[int]] = field(default_factory=list[list[int]])
    """[num_choices][num_response_tokens]."""
    finished: bool = False
    """False while it runs, and forever if the client disconnected."""
    ended: bool = False
    """Whether it no longer runs, however it ended."""


def find_continued_chat(calls: Sequence[ReceivedCall], prompt_token_ids: Sequence[int]) -> tuple[ReceivedCall, int]:
    """Find the chat whose answer continues, and the number of answer tokens already in the prompt.

    Raises: BadInputError: no chat matches.
    """
    chats = [call for call in calls if "messages" in call.body]
    begun = [call for call in chats if prompt_token_ids[: len(call.prompt_token_ids)] == call.prompt_token_ids]
    if not begun:
        raise BadInputError(
            "completion: expected a prompt that begins with a chat's, found another; ask the chat first"
        )
    chat = max(begun, key=lambda call: len(call.prompt_token_ids))
    return chat, len(prompt_token_ids) - len(chat.prompt_token_ids)


def text_choice(word: str, delta: JsonObject, body: JsonObject) -> JsonObject:
    """Return a word as a choice of a text completion."""
    token_id = word_token_id(word)
    choice: JsonObject = {"index": 0, "text": delta.get("content", ""), "finish_reason": None}
    if body.get("return_token_ids"):
        choice["token_ids"] = [token_id]
    if cast("int | None", body.get("logprobs")) is not None:
        values = {"tokens": [str(token_id)], "token_logprobs": [token_logprob(token_id)]}
        choice["logprobs"] = values | {"text_offset": [0], "top_logprobs": [{}]}
    return choice
