"""This file holds what translated answers say in numbers: how many tokens there were, and on demand which."""

import msgspec

from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.gateway.dialects.chat_answer import ChatAnswer, EngineUsage, PromptDetails, ResponseDetails
from agent_layer.schema.record import JsonObject

__all__ = ["TokenCounts", "sampled_of", "usage_of"]


class TokenCounts(msgspec.Struct, frozen=True):
    """Tokens of a call; None: the engine does not say."""

    prompt: int
    sampled: int
    cached: int | None
    """Of the prompt's tokens."""
    thought: int | None
    """Of the sampled ones."""


def usage_of(answer: ChatAnswer) -> TokenCounts:
    """Count as the engine does, or, where it says nothing, the ids themselves."""
    found = answer.usage or EngineUsage()
    sampled = sum(len(action.response_token_ids or ()) for action in answer.actions)
    return TokenCounts(
        prompt=found.prompt_tokens or len(answer.prompt_token_ids or ()),
        sampled=found.completion_tokens or sampled,
        cached=(found.prompt_tokens_details or PromptDetails()).cached_tokens,
        thought=(found.completion_tokens_details or ResponseDetails()).reasoning_tokens,
    )


def sampled_of(answer: ChatAnswer, request: ChatRequest) -> JsonObject:
    """Give the ids themselves to a client that asked for them with ``return_token_ids``."""
    if not request.wants_token_ids or not answer.actions or answer.prompt_token_ids is None:
        return {}
    sampled = answer.actions[0].response_token_ids
    return {"prompt_token_ids": answer.prompt_token_ids.tolist(), "token_ids": sampled.tolist() if sampled else None}
