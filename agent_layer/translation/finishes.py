"""How answers end: one table of the reasons that engines name, with the words of every dialect, there and back.

What an engine broke off, or ended for a reason that is not in the table, has the dialect's word for an answer that was
cut off.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from agent_layer.schema import StepStatus


class Finish(msgspec.Struct, frozen=True):
    """What a finish reason means."""

    status: StepStatus
    """Status of the step; only ``ok`` is trained."""
    stop_reason: str
    """Anthropic's word."""
    google_reason: str = "MAX_TOKENS"
    """Google's word."""
    incomplete: str | None = None
    """Responses' word for why an answer is incomplete."""
    is_complete: bool = False
    """Responses call the answer complete."""
    spends_turn: bool = True
    """What was sampled led to it; False: the engine did not go on, so the rollout pays no turn."""


_CUT_OFF: Final = Finish("aborted", "max_tokens")
FINISHES: Final[Mapping[str | None, Finish]] = MappingProxyType(
    {
        "stop": Finish("ok", "end_turn", "STOP", is_complete=True),
        "tool_calls": Finish("ok", "tool_use", "STOP", is_complete=True),
        "function_call": Finish("ok", "tool_use", "STOP", is_complete=True),
        "length": Finish("ok", "max_tokens", incomplete="max_output_tokens"),
        "content_filter": Finish("ok", "refusal", "SAFETY", "content_filter"),
        "repetition": _CUT_OFF,
        "abort": Finish("aborted", "max_tokens", spends_turn=False),
        "error": Finish("error", "max_tokens", spends_turn=False),
        None: Finish("aborted", "max_tokens", spends_turn=False),
    }
)
"""Endings by an engine's reason; None: it names none. ``repetition``, ``abort`` and ``error`` are vLLM's."""


def find_finish(reason: str | None) -> Finish:
    """Return what a finish reason means; one that is not known is a cut-off answer."""
    return FINISHES.get(reason, _CUT_OFF)


def find_reason(kind: Literal["stop_reason", "google_reason", "incomplete"], word: str | None) -> str | None:
    """Return the finish reason of chat completions for a dialect's word; one that is not in the table stays."""
    return next((reason for reason, one in FINISHES.items() if word and getattr(one, kind) == word), word)
