"""Which token a teacher's numbers belong to, and which rollouts have none. Pure.

A row is asked about whole, so that each token has the context in which it was sampled: prompt, tool outputs, and in a
fork the tokens that another row trains. Only the tokens that the row itself trains get a number.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import NamedTuple, TypeAlias

import msgspec

from agent_layer.engines import SMALLEST_LOGPROB
from agent_layer.schema import ExcludedRollout, Logprobs, TokenIds, TrainingSample
from trainer_adapter.data import GroupIntake, RolloutSamples

_MAX_NUMBER = 1e-3
"""A log-probability may be above 0 by rounding only."""


class Silence(NamedTuple):
    """Why a teacher has no numbers for a row."""

    kind: str
    """Short name, as in ``ExcludedRollout``."""
    reason: str


Scores: TypeAlias = Logprobs | Silence
"""[num_prompt_tokens + num_response_tokens - 1] log-probability of each token of a row but the first, or none."""


def judge_group(group: GroupIntake, score: Callable[[Sequence[TokenIds]], Sequence[Scores]]) -> GroupIntake:
    """Return a group with the teacher's log-probabilities; rollouts without them are excluded.

    Args:
        group: as it was delivered; rollouts without a reward need no teacher.
        score: asks about rows of token ids, and returns an answer for each.
    """
    rows = [sample for rollout in _judged(group) for sample in rollout.samples]
    judged = [sample for sample in rows if sample.temperature == 1]
    answers = score([TokenIds([*sample.prompt_ids, *sample.response_ids]) for sample in judged])
    found: dict[str, Scores] = {sample.sample_id: _other_temperature(sample) for sample in rows}
    found |= {sample.sample_id: one for sample, one in zip(judged, answers, strict=True)}
    targets = {sample.sample_id: align_scores(sample, found[sample.sample_id]) for sample in rows}
    return _add_targets(group, targets)


def align_scores(sample: TrainingSample, scores: Scores) -> Scores:
    """Return [num_response_tokens] log-probabilities: the teacher's for each token that the sample trains, 0.0 for
    others; or why one of them cannot be used.
    """
    if isinstance(scores, Silence):
        return scores
    first = len(sample.prompt_ids) - 1
    targets = Logprobs(
        score if is_trained else 0.0 for score, is_trained in zip(scores[first:], sample.loss_mask, strict=True)
    )
    for place, target in enumerate(targets):
        if not (isfinite(target) and SMALLEST_LOGPROB < target <= _MAX_NUMBER):
            return Silence(
                "bad_teacher_logprobs",
                f"expected log-probabilities above {SMALLEST_LOGPROB:g} and at most 0, found {target:g} for response"
                f" token {place}; start the teacher with a --logprobs-mode of log-probabilities, not of logits",
            )
    return targets


def _judged(group: GroupIntake) -> list[RolloutSamples]:
    return [rollout for rollout in group.samples.rollouts if rollout.reward is not None]


def _other_temperature(sample: TrainingSample) -> Silence:
    return Silence(
        "teacher_temperature",
        f"a teacher answers at temperature 1, but it was sampled at {sample.temperature}; set rollouts.temperature: 1",
    )


def _add_targets(group: GroupIntake, targets: Mapping[str, Scores]) -> GroupIntake:
    """Return the group with these targets by sample id, without the rollouts that miss one."""
    rollouts: list[RolloutSamples] = []
    excluded = list(group.excluded)
    ages: list[int] = []
    for rollout, own_ages in _with_ages(group):
        if rollout.reward is None:
            rollouts.append(rollout)
            ages += own_ages
            continue
        own = [targets[sample.sample_id] for sample in rollout.samples]
        silent = [(sample, one) for sample, one in zip(rollout.samples, own, strict=True) if isinstance(one, Silence)]
        if silent:
            sample, (kind, why) = silent[0]
            reason = f"trajectory {rollout.trajectory_id}: its row {sample.sample_id} has no teacher: {why}"
            excluded.append(ExcludedRollout(trajectory_id=rollout.trajectory_id, kind=kind, reason=reason))
            continue
        known = [one for one in own if isinstance(one, Logprobs)]
        rollouts.append(msgspec.structs.replace(rollout, teacher_logprobs=known))
        ages += own_ages
    samples = msgspec.structs.replace(group.samples, rollouts=rollouts)
    return msgspec.structs.replace(group, samples=samples, excluded=excluded, ages=ages)


def _with_ages(group: GroupIntake) -> Iterator[tuple[RolloutSamples, list[int]]]:
    """Yield each rollout with the ages of its tokens."""
    start = 0
    for rollout in group.samples.rollouts:
        end = start + sum(version >= 0 for sample in rollout.samples for version in sample.versions)
        yield rollout, group.ages[start:end]
        start = end
