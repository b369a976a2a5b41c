"""Members of requests that shape no answer: they name users, sessions, caches and prices, and no engine reads them.

They are no sampling, and that nothing applies them is worth no finding: one on each step would hide those that matter.
"""

from typing import Final

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import UNREADABLE, JsonObject

_HARMLESS: Final = frozenset(
    {"metadata", "client_metadata", "user", "user_profile_id", "workspace_id", "safety_identifier", "session_id"}
    | {"service_tier", "inference_geo", "speed", "usage", "diagnostics", "betas", "store", "prediction"}
    | {"guided_decoding_backend", "cache_control", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"}
    | {"litellm_call_id", "litellm_metadata", "litellm_session_id", "litellm_trace_id"}
)
"""Members of all dialects: OpenAI's, Anthropic's, and those that Codex, LiteLLM and OpenRouter's clients add."""
_MAX_CHOICES: Final = 128
"""OpenAI's documented limit."""
_COUNTS: Final = ("n", "best_of")


class _Edit(msgspec.Struct):
    type: str = ""
    keep: object = None


class _Edits(msgspec.Struct):
    edits: list[_Edit] = []


_EDITS: Final = msgspec.json.Decoder(_Edits)


def is_harmless(name: str, value: bytes) -> bool:
    """Whether a member of a request, with this JSON text, changes neither what the model reads nor what it says."""
    return name in _HARMLESS or (name == "context_management" and _keeps_all(value))


def _keeps_all(value: bytes) -> bool:
    """Whether an edit of the context removes nothing: Claude Code asks so with every request."""
    try:
        edits = _EDITS.decode(value).edits
    except UNREADABLE:
        return False
    return all(edit.type.startswith("clear_thinking") and edit.keep == "all" for edit in edits)


def check_counts(sampling: JsonObject, subject: str) -> None:
    """Check how many answers are asked for: a number that no engine can serve could end one.

    Raises: BadInputError: it is no integer of 1 to 128.
    """
    for name in _COUNTS:
        value = sampling.get(name)
        is_count = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_CHOICES
        if value is not None and not is_count:
            raise BadInputError(f"{subject}: expected {name} from 1 to {_MAX_CHOICES}, found {value!r}; correct it")
