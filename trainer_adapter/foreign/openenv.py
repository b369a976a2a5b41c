"""OpenEnv's ``TrainingTrace`` out of stored trajectories, and rows out of a trace (openenv 0.10, schema version 1).

A trace has one turn for each call of the model: all ids of its prompt, the sampled ids, their log-probabilities, and a
loss mask over both. Policy versions, agent and reward have no field there: they are in the turn's metadata.
Nothing here imports OpenEnv; what is written validates as ``openenv.core.harness.TrainingTrace``.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from agent_layer.errors import BadInputError
from agent_layer.schema import UNREADABLE, JsonObject, Step, Trajectory
from trainer_adapter.data import samples_of

TokenId: TypeAlias = Annotated[int, Meta(ge=0)]


class TrainingTurn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call, with OpenEnv's names."""

    node_id: Annotated[str, Meta(min_length=1)]
    """Different in each turn: ``{trajectory}/{call}.{choice}`` where we write it."""
    prompt_token_ids: list[TokenId]
    completion_token_ids: list[TokenId]
    per_token_logps: list[Annotated[float, Meta(le=0)]]
    """[num_completion_tokens]."""
    loss_mask: list[Annotated[int, Meta(ge=0, le=1)]]
    """[num_prompt_tokens + num_completion_tokens], 0 over the prompt."""
    request: JsonObject = {}
    response: JsonObject = {}
    metadata: JsonObject = {}


class TrainingTrace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All calls of one attempt, oldest first."""

    schema_version: Literal[1] = 1
    turns: list[TrainingTurn]


class TraceRow(NamedTuple):
    """A row to train: a call, and all calls whose tokens it repeats."""

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    """[num_completion_tokens], 0.0 where the mask is 0."""
    loss_mask: list[int]
    """[num_completion_tokens]."""


def make_trace(trajectory: Trajectory) -> TrainingTrace:
    """Return the trainable calls of an attempt.

    Raises: CaptureError: it cannot be trained exactly, such as a call without token ids.
    """
    trained = {(ref.call_id, ref.choice) for sample in samples_of(trajectory).samples for ref in sample.steps}
    steps = [step for step in trajectory.steps if (step.call_id, step.choice) in trained]
    return TrainingTrace(turns=[_make_turn(trajectory, step) for step in steps])


def read_rows(content: bytes) -> list[TraceRow]:
    """Return the rows of a trace, as JSON of OpenEnv or of ``make_trace``: each call's tokens are trained once.

    A call that goes on where a row ends extends it; any other begins a row with its own prompt.

    Raises: BadInputError: it is no trace, two turns have the same id, or the lengths of a turn do not agree.
    """
    try:
        trace = msgspec.json.decode(content, type=TrainingTrace)
    except UNREADABLE as error:
        raise BadInputError(
            f"training trace: expected OpenEnv's schema version 1, found {error}; write it with openenv-core 0.10"
        ) from error
    if num_repeated := len(trace.turns) - len({turn.node_id for turn in trace.turns}):
        raise BadInputError(
            f"training trace: expected a different node_id in each of {len(trace.turns)} turns, found {num_repeated}"
            " repeated; keep each call once"
        )
    rows: list[TraceRow] = []
    for turn in trace.turns:
        _check_turn(turn)
        prompt, mask = turn.prompt_token_ids, turn.loss_mask[len(turn.prompt_token_ids) :]
        place = max(_find_extended(rows, prompt), key=lambda at: len(rows[at].completion_ids), default=None)
        row = TraceRow(prompt, [], [], []) if place is None else rows.pop(place)
        between = prompt[len(row.prompt_ids) + len(row.completion_ids) :]
        extended = TraceRow(
            row.prompt_ids,
            [*row.completion_ids, *between, *turn.completion_token_ids],
            [*row.logprobs, *[0.0] * len(between), *turn.per_token_logps],
            [*row.loss_mask, *[0] * len(between), *mask],
        )
        rows.insert(len(rows) if place is None else place, extended)
    return rows


def _make_turn(trajectory: Trajectory, step: Step) -> TrainingTurn:
    prompt, sampled = list(step.prompt_token_ids or ()), list(step.action.response_token_ids or ())
    return TrainingTurn(
        node_id=f"{trajectory.trajectory_id}/{step.call_id}.{step.choice}",
        prompt_token_ids=prompt,
        completion_token_ids=sampled,
        per_token_logps=list(step.action.logprobs or ()),
        loss_mask=[0] * len(prompt) + [1] * len(sampled),
        metadata={
            "trajectory_id": trajectory.trajectory_id,
            "agent": step.agent,
            "policy_versions": [list(run) for run in step.action.policy_versions or ()],
            "temperature": step.temperature,
            "reward": trajectory.reward,
        },
    )


def _check_turn(turn: TrainingTurn) -> None:  # kept: its name says what the condition checks
    num_prompt, num_sampled = len(turn.prompt_token_ids), len(turn.completion_token_ids)
    lengths = (len(turn.per_token_logps), len(turn.loss_mask))
    if lengths != (num_sampled, num_prompt + num_sampled) or any(turn.loss_mask[:num_prompt]) or not num_prompt:
        raise BadInputError(
            f"training trace, turn {turn.node_id}: expected a prompt that is not trained, {num_sampled}"
            f" log-probabilities, and a mask of {num_prompt + num_sampled}, found {lengths[0]} and {lengths[1]};"
            " capture it again"
        )


def _find_extended(rows: Sequence[TraceRow], prompt: Sequence[int]) -> Iterator[int]:
    """Yield the places of rows that a prompt goes on from."""
    for place, row in enumerate(rows):
        ids = [*row.prompt_ids, *row.completion_ids]
        if list(prompt[: len(ids)]) == ids:
            yield place
