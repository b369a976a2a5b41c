"""Reads what scorers answer: a verdict, a number, or numbers by name."""

import math
from collections.abc import Mapping
from numbers import Real
from typing import cast

import msgspec

from envs.grading.scorer import Verdict


def read_verdict(answer: object, only_reward: str) -> Verdict:
    """Return the answer of a scorer as a verdict.

    Args:
        answer: what it returned; anything but a verdict and numbers is no judgement.
        only_reward: name of the reward that a plain number is the score of.
    """
    if not isinstance(answer, Verdict):
        return Verdict(scores=read_scores(answer, only_reward))
    if answer.tampering and answer.status == "ok":
        answer = msgspec.structs.replace(answer, status="tampering")
    return msgspec.structs.replace(
        answer,
        scores=read_scores(answer.scores, only_reward),
        step_scores={step: read_scores(scores, only_reward) for step, scores in answer.step_scores.items()},
    )


def read_scores(value: object, only_reward: str) -> dict[str, float]:
    """Parse a number, or a mapping of names to numbers, as scores by name; empty when any is no finite number."""
    if isinstance(value, Mapping):
        found = {str(name): _score(score) for name, score in cast("Mapping[object, object]", value).items()}
        scores = {name: score for name, score in found.items() if score is not None}
        return scores if len(scores) == len(found) else {}
    score = _score(value)
    return {} if score is None else {only_reward: score}


def _score(value: object) -> float | None:
    """Return the value as a float, NumPy's scalars included; None: not a number, or not finite."""
    if not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
