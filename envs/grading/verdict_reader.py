"""Reads what scorers and agents answer: a verdict, a number of any type, or numbers by name."""

from collections.abc import Mapping
from typing import cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import plain_number, read_score
from envs.grading.scorer import Verdict
from tracer.core import json_value


def read_verdict(answer: object, only_reward: str) -> Verdict:
    """Return the answer of a scorer as a verdict, which names what is no finite number.

    Args:
        answer: what it returned.
        only_reward: name of the reward that a plain number is the score of.
    """
    if not isinstance(answer, Verdict):
        return read_scores(answer, only_reward)
    if answer.tampering and answer.status == "ok":
        answer = msgspec.structs.replace(answer, status="tampering")
    found = read_scores(answer.scores, only_reward)
    steps = {step: read_scores(scores, only_reward) for step, scores in answer.step_scores.items()}
    refused = {f"{name} of step {step}": why for step, one in steps.items() for name, why in one.refused.items()}
    return msgspec.structs.replace(
        answer,
        scores=found.scores,
        step_scores={step: one.scores for step, one in steps.items()},
        refused={**answer.refused, **refused, **found.refused},
    )


def read_scores(value: object, only_reward: str) -> Verdict:
    """Return a number, or a mapping of names to numbers, as a verdict; None gives no score."""
    found = cast("Mapping[object, object]", value) if isinstance(value, Mapping) else {only_reward: value}
    scores, refused = dict[str, float](), dict[str, str]()
    for name, score in found.items():
        if score is None:
            continue
        try:
            scores[str(name)] = read_score(score, f"score {str(name)!r}")
        except BadInputError as error:
            refused[str(name)] = str(error)
    return Verdict(scores=scores, refused=refused)


def plain_result(result: object) -> object:
    """Return what an agent returned as JSON, numbers of any type as numbers; NaN and infinities stay what they are."""
    if isinstance(result, Mapping):
        fields = cast("Mapping[object, object]", result)
        if all(isinstance(name, str) for name in fields):
            return {cast("str", name): _plain_field(value) for name, value in fields.items()}
    return _plain_field(cast("object", result))


def _plain_field(value: object) -> object:
    number = plain_number(value)
    return json_value(value if number is None else number)
