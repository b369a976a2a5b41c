"""What updates computed for each sampled token: its records, and their comparison with a batch that is built again.

Advantages follow from rewards, and from the log-probabilities beside them where there was a teacher, so they are
computed again and compared. Log-probabilities follow from weights that are gone: each trained token must have one, a
finite number. A mask of 0 is right only where rollout correction rejects.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import isclose, isfinite
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from agent_layer.schema import Advantages, DistillRule, Logprobs, TrainedBatch, TrainedTokens, Trajectory
from trainer_adapter.algorithms import OverlongPenalty
from trainer_adapter.data.advantages import TrainingBatch, assign_credit, find_changed_code, value_advantages
from trainer_adapter.data.credit import CreditRule
from trainer_adapter.data.samples import StepKey

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RELATIVE, _ABSOLUTE = 1e-5, 1e-6
"""Largest differences of an advantage: it is computed in float64 and kept in float32."""

Call: TypeAlias = tuple[str, int, int]
"""(call id, choice, number of tokens)."""


class TokenColumns(msgspec.Struct, frozen=True, kw_only=True):
    """What an update computed for the tokens of one rollout; see ``TrainedTokens``."""

    calls: list[Call]
    logprobs: Logprobs
    advantages: Advantages
    mask: bytes
    teacher_logprobs: Logprobs | None = None


def record_tokens(record: TrainedBatch, columns: Sequence[TokenColumns]) -> Iterator[TrainedTokens]:
    """Yield the record of each rollout with a trained token.

    Args:
        record: of the batch.
        columns: [num_rollouts], in the order of the batch.
    """
    at = time.time()
    for rollout, found in zip(record.rollouts, columns, strict=True):
        if found.calls:
            yield TrainedTokens(
                trajectory_id=rollout.trajectory_id,
                run=record.run,
                batch_id=record.batch_id,
                step=record.step,
                policy_version=record.policy_version,
                at=at,
                calls=found.calls,
                logprobs=found.logprobs,
                advantages=found.advantages,
                mask=found.mask,
                teacher_logprobs=found.teacher_logprobs,
            )


def list_calls(batch: TrainingBatch) -> list[list[Call]]:
    """Return [num_rollouts] the calls whose tokens a batch trains, in order of its rows."""
    found: list[list[Call]] = [[] for _ in batch.rewards]
    for position, sample in zip(batch.rollout_of, batch.samples, strict=True):
        found[position] += [(step.call_id, step.choice, step.num_tokens) for step in sample.steps]
    return found


def gap_by_engine(
    batch: TrainingBatch, columns: Sequence[TokenColumns | TrainedTokens], engines: Mapping[str, str], version: int
) -> dict[str, float]:
    """Return the mean |trainer - engine| log-probability of each engine, over tokens that the trained weights sampled.

    Args:
        batch: of an update.
        columns: [num_rollouts], what it computed.
        engines: address by call id; calls that it lacks do not count.
        version: of the trained weights, before the update.

    Returns: by address; engines without such a token are left out. A log-probability that is not finite makes the mean
        so, too.
    """
    import numpy as np  # noqa: PLC0415  # it comes with torch

    sampled = {
        (position, step.call_id, step.choice): (sample, step.start)
        for position, sample in zip(batch.rollout_of, batch.samples, strict=True)
        for step in sample.steps
    }
    gaps: defaultdict[str, list[NDArray[np.float64]]] = defaultdict(list)
    for position, found in enumerate(columns):
        at = 0
        for call_id, choice, size in found.calls:
            sample, start = sampled[position, call_id, choice]
            if (engine := engines.get(call_id)) is not None:
                is_own = np.asarray(sample.versions)[start : start + size] == version
                own, its = np.asarray(found.logprobs)[at : at + size], np.asarray(sample.logprobs)[start : start + size]
                gaps[engine].append(np.abs(own[is_own].astype(np.float64) - its[is_own]))
            at += size
    joined = {engine: np.concatenate(parts) for engine, parts in sorted(gaps.items())}
    return {engine: float(own.mean()) for engine, own in joined.items() if own.size}


def compare_tokens(
    record: TrainedBatch, batch: TrainingBatch, trajectories: Mapping[str, Trajectory]
) -> list[str] | None:
    """Compare what an update kept with what its batch gives when it is built again.

    Args:
        record: of the batch, with ``advantages``.
        batch: built again.
        trajectories: of the batch, by id.

    Returns: the first difference of each rollout; None when nothing of the update is stored.
    """
    kept = [_kept(record, trajectories[trajectory_id]) for trajectory_id in batch.trajectory_ids]
    if not any(kept):
        return None
    differences: list[str] = []
    if record.advantages is not None and (name := find_changed_code(record.advantages, record.credit)) is not None:
        differences.append(
            f"the advantages: {name!r}, by whose code they follow from rewards, is not what it was, or not here; they"
            " are not compared"
        )
    calls, advantages = list_calls(batch), None if differences else _advantages_of_calls(record, batch)
    for position, trajectory_id in enumerate(batch.trajectory_ids):
        if not (one := kept[position]) and calls[position]:
            differences.append(f"trajectory {trajectory_id}: expected what the update computed for it, found nothing")
        elif one:
            trajectory, expected = trajectories[trajectory_id], advantages[position] if advantages else None
            found = _first_difference(record, one, calls[position], expected, _indices(trajectory))
            differences += [f"trajectory {trajectory_id}{found}"] if found else []
    return differences


def _kept(record: TrainedBatch, trajectory: Trajectory) -> TrainedTokens | None:
    return next((one for one in trajectory.trained if one.batch_id == record.batch_id), None)


def _indices(trajectory: Trajectory) -> dict[StepKey, int]:
    return {(step.call_id, step.choice): step.index for step in trajectory.steps}


def _advantages_of_calls(record: TrainedBatch, batch: TrainingBatch) -> list[list[float]] | None:
    """Return [num_rollouts][num_calls] advantages; None after deletions, which take rewards out of baselines."""
    rule = record.advantages
    if rule is None or record.num_deleted:
        return None
    penalty = None
    if rule.overlong_tokens is not None and rule.overlong_buffer is not None:
        penalty = OverlongPenalty(max_tokens=rule.overlong_tokens, buffer_tokens=rule.overlong_buffer)
    of_record = CreditRule(
        credit=record.credit, options=rule.credit_options, discount=rule.discount, overlong_penalty=penalty
    )
    judged = assign_credit(batch, of_record)
    values = value_advantages(judged, rule)
    found: list[list[float]] = [[] for _ in batch.rewards]
    for position, sample, spans in zip(batch.rollout_of, batch.samples, judged.spans, strict=True):
        has_one = record.credit in ("rollout", "agent")
        of_step = [spans[0][2]] * len(sample.steps) if has_one else [value for _, _, value in spans]
        found[position] += [values[value] for value in of_step]
    return found


def _first_difference(
    record: TrainedBatch,
    kept: TrainedTokens,
    calls: Sequence[Call],
    advantages: Sequence[float] | None,
    indices: Mapping[StepKey, int],
) -> str | None:
    """Return the first difference of a rollout, in words that follow its name; None without any."""
    if kept.calls != list(calls):
        return f": expected the tokens of the calls {list(calls)}, found those of {kept.calls}"
    distill = record.advantages.distill if record.advantages is not None else None
    if (distill is None) != (kept.teacher_logprobs is None):
        was = "no teacher" if distill is None else f"the log-probabilities of the teacher {distill.teacher}"
        return f": expected {was}, found {'none' if distill else 'log-probabilities of one'}"
    sizes = [len(kept.logprobs), len(kept.advantages), len(kept.mask)]
    sizes += [len(kept.teacher_logprobs)] if kept.teacher_logprobs is not None else []
    if sizes != [sum(size for _, _, size in calls)] * len(sizes):
        return f": expected a number for each of {sum(size for _, _, size in calls)} trained tokens, found {sizes}"
    can_reject = record.advantages is not None and record.advantages.can_reject
    start = 0
    for number, (call_id, choice, size) in enumerate(calls):
        for token in range(size):
            place = start + token
            expected = None if advantages is None else advantages[number] + _of_teacher(distill, kept, place)
            if found := _token_difference(kept, place, expected, can_reject=can_reject):
                return f", step {indices[call_id, choice]}, token {token} (call {call_id}, choice {choice}): {found}"
        start += size
    return None


def _of_teacher(distill: DistillRule | None, kept: TrainedTokens, place: int) -> float:
    """Return the teacher's part of a token's advantage; 0.0 without one."""
    if distill is None or kept.teacher_logprobs is None:
        return 0.0
    return distill.coefficient * (kept.teacher_logprobs[place] - kept.logprobs[place])


def _token_difference(kept: TrainedTokens, place: int, advantage: float | None, *, can_reject: bool) -> str | None:
    found = kept.advantages[place]
    if advantage is not None and not isclose(found, advantage, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE):
        return f"expected the advantage {advantage:g}, found {found:g}"
    if kept.mask[place] != 1 and not (can_reject and kept.mask[place] == 0):
        return f"expected the mask 1, found {kept.mask[place]}"
    if not isfinite(kept.logprobs[place]):
        return f"expected a log-probability, found {kept.logprobs[place]}"
    if kept.teacher_logprobs is not None and not isfinite(kept.teacher_logprobs[place]):
        return f"expected a log-probability of the teacher, found {kept.teacher_logprobs[place]}"
    return None
