"""Recorded token ids, asked of an engine again: as a score without cache, as one more token, as a rendered prompt."""

from collections.abc import Mapping, Sequence

import msgspec

from agent_layer.engines import NEUTRAL_SAMPLING, TeacherEngine
from agent_layer.errors import EngineError
from agent_layer.gaps.causes import CacheGap, TemplateGap
from agent_layer.schema import JsonObject, Logprobs, TokenIds


class _Sampled(msgspec.Struct):
    token_logprobs: list[float] = []


class _Choice(msgspec.Struct):
    token_ids: list[int] = []
    logprobs: _Sampled | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice] = []


class _Rendered(msgspec.Struct):
    tokens: list[int]


def score_response(engine: TeacherEngine, prompt: TokenIds, response: TokenIds) -> Logprobs:
    """Return [num_response_tokens] log-probabilities of a response behind its prompt, at temperature 1, without cache.

    Raises: EngineError: it refuses the tokens, or returns no such numbers. UnreachableError: it does not answer.
    """
    return Logprobs(engine.score(TokenIds([*prompt, *response]))[len(prompt) - 1 :])


def probe_cache(engine: TeacherEngine, prompt: TokenIds, tolerance: float) -> CacheGap | None:
    """Return how an answer that may read the prefix cache differs from one that may not; None: it does not.

    It has to come before any other request for these ids, which could replace what is cached.

    Raises: EngineError: it returns no ids or log-probabilities. UnreachableError: it does not answer.
    """
    body = {"prompt": list(prompt), "max_tokens": 1, "logprobs": 0, "return_token_ids": True}
    answer = engine.post("/v1/completions", {**NEUTRAL_SAMPLING, **body}, _Completion)
    choice = answer.choices[0] if answer.choices else _Choice()
    if not choice.token_ids or choice.logprobs is None or not choice.logprobs.token_logprobs:
        raise EngineError(
            f"{engine.noun} {engine.url}: expected the id and log-probability of a sampled token, found none; use vLLM"
        )
    cached = choice.logprobs.token_logprobs[0]
    fresh = score_response(engine, prompt, TokenIds(choice.token_ids[:1]))[0]
    return CacheGap(engine.url, cached, fresh) if abs(cached - fresh) > tolerance else None


def compare_template(
    engine: TeacherEngine, prompt: TokenIds, messages: Sequence[object], tools: object, sampling: Mapping[str, object]
) -> TemplateGap | None:
    """Return the first token by which the engine renders messages otherwise than they were recorded; None: none.

    Raises: EngineError: it cannot render them. UnreachableError: it does not answer.
    """
    body: JsonObject = {"messages": list(messages), "add_generation_prompt": True}
    body |= {"tools": tools} if tools else {}
    body |= {name: sampling[name] for name in ("chat_template_kwargs", "add_generation_prompt") if name in sampling}
    rendered = engine.post("/tokenize", body, _Rendered).tokens
    for position in range(max(len(prompt), len(rendered))):
        one = prompt[position] if position < len(prompt) else None
        two = rendered[position] if position < len(rendered) else None
        if one != two:
            return TemplateGap(engine.url, position, one, two, TokenIds(rendered)) if rendered else None
    return None
