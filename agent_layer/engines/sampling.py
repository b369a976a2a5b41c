"""Sampling that a trainer can reproduce, and what stands in its way.

A trainer computes the log-probability of a token as log softmax(logits / temperature). Every other field that changes
the distribution makes its number differ from the engine's: a filter renormalises, a penalty or bias moves logits, a
grammar masks them. Lengths, stop conditions and seeds choose where an answer ends, not how likely its tokens are.

Names and neutral values are those of vLLM 0.31 (``SamplingParams``, ``ChatCompletionRequest``, ``v1/sample``). An
engine fills fields that a request leaves out from the ``generation_config.json`` of its model, so that only an explicit
value is certain.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from agent_layer.schema import JsonObject, as_json_object

GREEDY: Final = "greedy"
"""Finding of a step that always took the likeliest token: there is no distribution to learn."""
RAW_LOGPROBS: Final = "raw_logprobs"
"""Finding of log-probabilities before the temperature, which is not 1: the step cannot be trained on."""
BAD_LOGPROBS: Final = "bad_logprobs"
"""Finding of a log-probability that is no number, or that the engine replaced by its smallest."""
NO_LOGPROBS: Final = "no_logprobs"
"""Finding of an answer with fewer log-probabilities than tokens: the step cannot be trained on."""
UNREPRODUCIBLE: Final = "unreproducible"
"""Finding of a field that changed the distribution in a way that no trainer can compute; its name follows."""
NEUTRALISED: Final = "neutralised"
"""Finding of such a field that the gateway replaced by its neutral value; its name follows."""

SMALLEST_LOGPROB: Final = -9999.0
"""What vLLM answers in place of minus infinity, which JSON cannot express."""
LOWEST_TEMPERATURE: Final = 0.01
"""Below it, vLLM samples greedily or at this temperature, whatever was asked."""

NEUTRAL_SAMPLING: Final[Mapping[str, object]] = MappingProxyType(
    {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,  # 0 in vLLM, but SGLang knows -1 only, and vLLM takes both
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }
)
"""Fields that an engine may fill by itself, with the values that leave the distribution as it is."""

_SWITCHED_OFF: Final[Mapping[str, object]] = MappingProxyType(
    {
        "allowed_token_ids": None,
        "bad_words": [],
        "logit_bias": None,
        "logits_processors": None,
        "min_tokens": 0,  # masks the end of turn until then
        "thinking_token_budget": None,  # forces the tokens that end the thinking
        "use_beam_search": False,
        "vllm_xargs": None,  # for extensions of the engine, which may do anything
    }
)
"""Fields without effect unless a request sets them, with the values that switch them off."""

GRAMMARS: Final = frozenset(
    {
        "guided_choice",
        "guided_grammar",
        "guided_json",
        "guided_regex",
        "response_format",
        "structured_outputs",
        "tool_choice",
        "ebnf",
        "json_schema",
        "regex",
        "structural_tag",
    }
)
"""Fields that may restrict an answer to a grammar; the last four are SGLang's. Without them an answer is free, and the
agent finds out whether it has the form."""

_FREE_TOOL_CHOICES: Final = ("auto", "none")
_FREE_FORMAT: Final = "text"


def find_unreproducible(sampling: JsonObject) -> list[str]:
    """Return the names of the fields that keep a trainer from reproducing the distribution, sorted.

    Args:
        sampling: of one call, in the words of chat completions. A field that is missing counts as neutral.
    """
    return sorted(name for name, value in sampling.items() if value is not None and _changes(name, value))


def is_neutral(name: str, value: object) -> bool:
    """Whether a field that can change the distribution does not, with this value."""
    return can_neutralise(name) and (value is None or not _changes(name, value))


def can_neutralise(name: str) -> bool:
    """Whether a field has a neutral value; a grammar has none, and can only be left out."""
    return name in NEUTRAL_SAMPLING or name in _SWITCHED_OFF


def neutral_value(name: str) -> object:
    """Return the value with which a field changes nothing.

    Raises: KeyError: it has none; see ``can_neutralise``.
    """
    return NEUTRAL_SAMPLING[name] if name in NEUTRAL_SAMPLING else _SWITCHED_OFF[name]


def _changes(name: str, value: object) -> bool:
    """Whether a field changes the distribution."""
    match name:
        case "temperature" | "top_p":
            least = LOWEST_TEMPERATURE if name == "temperature" else 1
            return not isinstance(value, int | float) or value < least
        case "top_k" | "min_p":
            return not isinstance(value, int | float) or value > 0
        case "repetition_penalty" | "presence_penalty" | "frequency_penalty":
            return value != NEUTRAL_SAMPLING[name]
        case "tool_choice":
            return value not in _FREE_TOOL_CHOICES
        case "response_format":
            return as_json_object(value).get("type") != _FREE_FORMAT
        case _:
            return bool(value) and (name in _SWITCHED_OFF or name in GRAMMARS)
