"""Trajectories as training samples: every sampled token is trained exactly once.

The steps of a trajectory form trees: a step whose prompt continues the tokens of an earlier step is its child. One
sample is one path from a root towards a leaf. Steps that several paths share are trained in the first of them, and are
masked context in the others. Nothing is re-tokenised, padded or cut.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import TypeAlias

import msgspec

from agent_layer.errors import BadInputError, CaptureError
from agent_layer.schema import (
    AttemptStarted,
    ExcludedRollout,
    Logprobs,
    PolicyRun,
    PromptDelta,
    Step,
    StepRef,
    TokenIds,
    TrainingSample,
    Trajectory,
)
from trainer_adapter.data.faults import exclude, find_faults
from trainer_adapter.data.routes import join_routes

_NOT_TRAIN = "not_train"
"""Kind of a rollout of another split."""

StepKey: TypeAlias = tuple[str, int]
"""(call id, choice)."""

Piece: TypeAlias = tuple[TokenIds, Step | None]
"""Consecutive tokens, with the step that sampled them if this sample trains them, else None."""


class DroppedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A policy step whose tokens are not trained, all or some of them."""

    call_id: str
    choice: int
    reason: str
    """``aborted``, ``error``, ``unfinished`` when its end was never recorded, ``long_row``, ``overlong``, or
    ``unreproducible:NAME`` when a grammar guided it."""
    num_tokens: int
    """Number of these tokens, as far as known."""


class SampleSet(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of one trajectory, and its steps that are not trained.

    The sum of all loss masks plus the tokens of all drops and cuts is the number of tokens that the policy sampled.
    """

    samples: list[TrainingSample]
    drops: list[DroppedStep]
    cuts: list[DroppedStep] = []
    """What is not trained for its length: tokens beyond the longest row, or all of an overlong rollout."""


def samples_of(trajectory: Trajectory) -> SampleSet:
    """Return the samples of a trajectory of the train split.

    Returns: samples in order of the end of their path; none when the policy was never called.

    Raises:
        BadInputError: the trajectory is not of the train split.
        CaptureError: a successful policy step lacks ids, log-probabilities or versions, or they cannot be trained.
    """
    found = read_samples(trajectory)
    if isinstance(found, ExcludedRollout):
        raise (BadInputError if found.kind == _NOT_TRAIN else CaptureError)(found.reason)
    return found


def read_samples(trajectory: Trajectory) -> SampleSet | ExcludedRollout:
    """Return the samples of a trajectory, or why it has none that can be trained exactly; see ``samples_of``."""
    started = trajectory.started
    if started is None:
        missing = (
            "expected the record of its beginning, which names its task, found none; run 'agent-layer store check'"
        )
        return exclude(trajectory, "no_start", missing)
    if started.split != "train":
        found = f"expected split 'train', found {started.split!r}; what is measured on must not be trained on"
        return exclude(trajectory, _NOT_TRAIN, found)
    guided = find_faults(trajectory)
    if isinstance(guided, ExcludedRollout):
        return guided
    policy_steps = [step for step in trajectory.steps if step.role == "policy"]
    whole = {_key(step): step for step in policy_steps if step.status == "ok" and _key(step) not in guided}
    untrained = {key: step for key, step in whole.items() if step.action.response_token_ids}
    by_key = {_key(step): step for step in trajectory.steps}
    samples: list[TrainingSample] = []
    for path in _paths_to_ends(by_key, untrained):
        for trained in _by_agent_and_temperature(step for step in path if _key(step) in untrained):
            sample = _make_sample(trajectory, started, len(samples), _pieces(path, trained))
            used = path[: path.index(trained[-1]) + 1]
            routes = join_routes(used, len(sample.prompt_ids) + len(sample.response_ids))
            samples.append(msgspec.structs.replace(sample, routed_experts=routes))
        for step in path:
            untrained.pop(_key(step), None)
    drops = [_drop(step, guided.get(_key(step))) for step in policy_steps if _key(step) not in whole]
    return SampleSet(samples=samples, drops=drops)


def _paths_to_ends(by_key: dict[StepKey, Step], wanted: dict[StepKey, Step]) -> list[list[Step]]:
    """Return paths, root first, to each wanted step that no other continues; together they cover all wanted steps."""
    paths = [list(_ancestry(by_key, step)) for step in wanted.values()]
    inner = {_key(step) for path in paths for step in path[1:]}
    return [path[::-1] for path in paths if _key(path[0]) not in inner]


def _ancestry(by_key: dict[StepKey, Step], step: Step | None) -> Iterator[Step]:
    while step is not None:
        yield step
        prompt = step.prompt or PromptDelta(delta=TokenIds())
        step = by_key[prompt.parent_call, prompt.parent_choice] if prompt.parent_call is not None else None


def _by_agent_and_temperature(steps: Iterable[Step]) -> list[list[Step]]:
    """Return the steps grouped by agent and temperature: a sample has one of each."""
    found: dict[tuple[str | None, float | None], list[Step]] = {}
    for step in steps:
        found.setdefault((step.agent, step.temperature), []).append(step)
    return list(found.values())


def _pieces(path: Sequence[Step], trained: Sequence[Step]) -> list[Piece]:
    """Return the pieces of a sample: the root's prompt, then all tokens up to the last trained step."""
    wanted = {_key(step) for step in trained}
    pieces: list[Piece] = []
    for position, step in enumerate(path):
        if position and step.prompt is not None:
            pieces.append((step.prompt.delta, None))
        is_trained = _key(step) in wanted
        pieces.append((step.action.response_token_ids or TokenIds(), step if is_trained else None))
        if step is trained[-1]:
            break
    return [(path[0].prompt_token_ids or TokenIds(), None), *pieces]


def _make_sample(trajectory: Trajectory, started: AttemptStarted, number: int, pieces: list[Piece]) -> TrainingSample:
    (prompt_ids, _), *rest = pieces
    starts = accumulate((len(ids) for ids, _ in rest), initial=0)
    trained = [(start, step, len(ids)) for start, (ids, step) in zip(starts, rest, strict=False) if step is not None]
    return TrainingSample(
        sample_id=f"{trajectory.trajectory_id}.{number}",
        trajectory_id=trajectory.trajectory_id,
        run=started.run,
        task_id=started.task_id,
        task_type=started.task_type,
        group_id=started.group_id,
        agent=trained[0][1].agent,
        temperature=trained[0][1].temperature,
        reward=trajectory.reward,
        prompt_ids=prompt_ids,
        response_ids=TokenIds(chain.from_iterable(ids for ids, _ in rest)),
        loss_mask=TokenIds(chain.from_iterable([int(step is not None)] * len(ids) for ids, step in rest)),
        logprobs=Logprobs(chain.from_iterable(_logprobs(piece) for piece in rest)),
        versions=TokenIds(chain.from_iterable(_versions(piece) for piece in rest)),
        steps=[
            StepRef(call_id=step.call_id, choice=step.choice, start=start, num_tokens=size)
            for start, step, size in trained
        ],
    )


def _logprobs(piece: Piece) -> Iterable[float]:
    ids, step = piece
    return (step.action.logprobs or ()) if step is not None else [0.0] * len(ids)


def _versions(piece: Piece) -> Iterable[int]:
    ids, step = piece
    return _spread(step.action.policy_versions or ()) if step is not None else [-1] * len(ids)


def _spread(runs: Iterable[PolicyRun]) -> list[int]:
    """Return one version per token."""
    return [version for version, num_tokens in runs for _ in range(num_tokens)]


def _drop(step: Step, fault: str | None) -> DroppedStep:
    num_tokens = len(step.action.response_token_ids or ())
    reason = fault or step.status or "unfinished"
    return DroppedStep(call_id=step.call_id, choice=step.choice, reason=reason, num_tokens=num_tokens)


def _key(step: Step) -> StepKey:
    return step.call_id, step.choice
