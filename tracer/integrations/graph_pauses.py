"""This file holds what a graph asks of people: ``interrupt(question)``, answered by ``Command(resume=answer)``.

A question and its answer are one observation, recorded when the answer comes. A question that nobody answers is
recorded without one when its rollout ends.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from tracer.integrations.graph_runs import Run, scope_at
from tracer.observations import ToolUse, is_pause

__all__ = ["answer_pause", "ask_at_pause", "is_handover"]

_NAME = "interrupt"


def ask_at_pause(run: Run, error: BaseException) -> None:
    """Keep what a node asks when it is left by this error."""
    if run.place is not run or not is_pause(error):
        return
    scope = scope_at(run.parent, run.base)
    for interrupt in _interrupts_of(error):
        question, name = getattr(interrupt, "value", None), str(getattr(interrupt, "id", ""))
        use = ToolUse(scope=scope, name=_NAME, arguments=question, call_id=run.before.latest_call)
        scope.rollout.questions[_thread_of(run), name] = use


def answer_pause(run: Run) -> None:
    """Record the answers that a graph goes on with; an answer by the id of its question is for that one only."""
    answer = cast("object", getattr(run.inputs, "resume", None))
    questions = run.base.rollout.questions
    if answer is None:
        return
    by_id = _by_id(answer)
    is_by_id = any(name in by_id for _, name in questions)
    for thread, name in list(questions):
        if thread == _thread_of(run) and (name in by_id or not is_by_id):
            questions.pop((thread, name)).record(by_id[name] if is_by_id else answer)


def is_handover(error: BaseException) -> bool:
    """Whether a node that is left by this error has done its part, and sends the graph around it elsewhere."""
    return type(error).__name__ == "ParentCommand"


def _by_id(answer: object) -> Mapping[object, object]:
    return cast("Mapping[object, object]", answer) if isinstance(answer, Mapping) else {}


def _interrupts_of(error: BaseException) -> Sequence[object]:
    first: object = error.args[0] if error.args else None
    return cast("Sequence[object]", first) if isinstance(first, (tuple, list)) else ()


def _thread_of(run: Run) -> str:
    return str(run.told.get("thread_id"))
