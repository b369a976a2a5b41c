"""How a run learns: rewards by task type and policy version, evaluation rounds and where they fell."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from typing import cast

from agent_layer.store import By, Summary
from agent_layer.view.answers.learning import LearningAnswer, LearningPoint, Regression
from agent_layer.view.answers.lists import RoundLine
from agent_layer.view.reads.lists import ABOVE_ZERO, natural_key
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.runs import make_progress
from agent_layer.view.reads.source import ReadContext

_CLEAR_ERRORS = 2.0
"""Standard errors of a difference of two rates beyond which chance does not explain it."""
_UNKNOWN = "not known"
"""Key of what has no value; no filter selects it."""


def show_learning(source: ReadContext, params: RequestParams) -> LearningAnswer:
    """Return rewards by a field and policy version, and the evaluation rounds."""
    run, by, split = params.path["run"], params.text("by") or "task_type", params.text("split") or "train"
    fields = cast("list[By]", list(dict.fromkeys([by, "policy"])))
    lines = source.store.summarise(fields, success=ABOVE_ZERO, run=run, split=split, accepted=True)
    fixed = {"run": run, "split": split, "accepted": "1"}
    points = [_point(line, by, fixed) for line in lines if line.count]
    points.sort(key=lambda one: (natural_key(one.key), -1 if one.version is None else one.version))
    rounds = make_progress(source, run, source.progress(run)).evaluations
    return LearningAnswer(run=run, by=by, points=points, evaluations=rounds, regressions=list(find_regressions(rounds)))


def _point(line: Summary, by: str, fixed: Mapping[str, str]) -> LearningPoint:
    values = {name: str(value) for name, value in line.by.items() if value is not None}
    key = line.by[by]
    return LearningPoint.from_record(
        line,
        key=_UNKNOWN if key is None else str(key),
        version=line.by["policy"],
        filters={**fixed, **values},
    )


def find_regressions(rounds: Sequence[RoundLine]) -> Iterator[Regression]:
    """Yield where a round passed less than the one of its name before it, the newest first."""
    names = dict.fromkeys(one.name for one in rounds)
    pairs = [
        pair
        for name in names
        for pair in pairwise(one for one in rounds if one.name == name and one.pass_rate is not None)
    ]
    for before, after in sorted(pairs, key=lambda pair: -pair[1].step):
        old, new = before.pass_rate or 0.0, after.pass_rate or 0.0
        if new < old:
            yield Regression(
                name=after.name,
                from_step=before.step,
                to_step=after.step,
                from_version=before.policy_version,
                to_version=after.policy_version,
                from_rate=old,
                to_rate=new,
                is_clear=old - new > _CLEAR_ERRORS * _error(old, before.num_rewards, new, after.num_rewards),
            )


def _error(old: float, num_old: int, new: float, num_new: int) -> float:
    """Return the standard error of the difference of two rates."""
    return sqrt(old * (1 - old) / max(1, num_old) + new * (1 - new) / max(1, num_new))
