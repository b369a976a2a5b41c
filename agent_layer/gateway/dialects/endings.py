"""How answers end that will not go on, by the table of reasons (``agent_layer/translation/finishes.py``).

Only an answer whose end is known is trained.
"""

from typing import Final

import msgspec

from agent_layer.gateway.dialects.chat_answer import ChatAnswer
from agent_layer.schema import UNFINISHED, StepStatus
from agent_layer.translation import find_finish

_MAX_REASON_LENGTH: Final = 64


class AnswerEnd(msgspec.Struct, frozen=True):
    """How all choices of an answer ended, by the worst of them."""

    status: StepStatus
    error: str | None = None
    findings: list[str] = []
    spends_turn: bool = True
    """See ``Finish``."""


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
