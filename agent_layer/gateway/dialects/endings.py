"""How answers end: one table of the reasons that engines name, for whole and streamed answers, in every dialect.

Only an answer whose end is known is trained. What an engine broke off, or ended for a reason that is not in the table,
is the client's all the same, in the dialect's word for an answer that was cut off.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.schema import UNFINISHED, StepStatus

_MAX_REASON_LENGTH: Final = 64


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


class AnswerEnd(msgspec.Struct, frozen=True):
    """How all choices of an answer ended, by the worst of them."""

    status: StepStatus
    error: str | None = None
    findings: list[str] = []
    spends_turn: bool = True
    """See ``Finish``."""


def find_finish(reason: str | None) -> Finish:
    """Return what a finish reason means; one that is not known is a cut-off answer."""
    return FINISHES.get(reason, _CUT_OFF)


def find_failure(answer: ChatAnswer) -> str | None:
    """Return why an answer that the client sees in another dialect failed, by the engine's word; None: it did not."""
    end = judge_end(msgspec.structs.replace(answer, actions=answer.actions[:1]), 1)
    return end.error if end.status == "error" else None


def judge_end(answer: ChatAnswer, num_choices: int) -> AnswerEnd:
    """Judge how an answer ended that will not go on.

    Args:
        answer: whole, or as far as it was streamed.
        num_choices: that the engine was asked for.
    """
    reasons = [action.finish_reason for action in answer.actions]
    reasons += [None] * (num_choices - len(reasons))
    finishes = [find_finish(reason) for reason in reasons]
    statuses = {finish.status for finish in finishes}
    worst: StepStatus = "error" if "error" in statuses else "aborted" if "aborted" in statuses else "ok"
    if worst == "ok":
        return AnswerEnd("ok")
    bad = [reason for reason, finish in zip(reasons, finishes, strict=True) if finish.status != "ok"]
    names = list(dict.fromkeys((reason or "no reason")[:_MAX_REASON_LENGTH] for reason in bad))
    return AnswerEnd(
        worst,
        f"the engine ended its answer with {', '.join(names)}, which is not known to be its end",
        [f"{UNFINISHED}:{name}" for name in names],
        all(finish.spends_turn for finish in finishes),
    )
