"""Two trajectories up to the first step and token at which they part."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final, Literal

from agent_layer.errors import BadInputError, CorruptRecordError
from agent_layer.schema import Step
from agent_layer.view.answers.compare import DiffAnswer, DiffStep
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.source import ReadContext
from agent_layer.view.reads.tokens.tokens import token_ids

_NAMES: Final[tuple[Literal["a", "b"], ...]] = ("a", "b")


def show_diff(source: ReadContext, params: RequestParams) -> DiffAnswer:
    """Compare two trajectories; of a damaged one, return why it cannot be read.

    Raises: BadInputError: one is not named. NotFoundError: there is none of this id.
    """
    names = [params.text(name) for name in _NAMES]
    if None in names:
        raise BadInputError("parameters a and b: expected two trajectories, found one or none; name both")
    sources = [source.of_trajectory(str(name)) for name in names]
    rows = [one.store.row(str(name)) for one, name in zip(sources, names, strict=True)]
    sides = [_read(one, row.trajectory_id) for one, row in zip(sources, rows, strict=True)]
    damaged: dict[Literal["a", "b"], str] = {
        name: side for name, side in zip(_NAMES, sides, strict=True) if isinstance(side, str)
    }
    nothing: Sequence[Step] = ()
    a, b = (nothing if damaged or isinstance(side, str) else side for side in sides)
    steps = [_compare(one, other) for one, other in zip_longest(a, b)]
    ids_a, ids_b = token_ids(a), token_ids(b)
    return DiffAnswer(
        a=rows[0],
        b=rows[1],
        damaged=damaged,
        first_step=next((at for at, step in enumerate(steps) if not step.is_same), None),
        first_token=_parting(ids_a, ids_b) if ids_a and ids_b else None,
        num_tokens_a=len(ids_a),
        num_tokens_b=len(ids_b),
        steps=steps,
    )


def _read(source: ReadContext, trajectory_id: str) -> Sequence[Step] | str:
    """Return the steps of a trajectory, or why they cannot be read."""
    try:
        return source.trajectory(trajectory_id).steps
    except CorruptRecordError as error:
        return str(error)


def _compare(one: Step | None, other: Step | None) -> DiffStep:
    if one is None or other is None:
        return DiffStep(a=one and one.index, b=other and other.index, is_same=False, part=None, at_token=None)
    part = _differing_part(one, other)
    return DiffStep(
        a=one.index,
        b=other.index,
        is_same=part is None,
        part=part,
        at_token=_parting(token_ids([one]), token_ids([other])),
    )


def _differing_part(one: Step, other: Step) -> Literal["prompt", "answer"] | None:
    """Return the first part that differs: by its ids where both have some, else by its messages."""
    if one.prompt is not None and other.prompt is not None:
        has_same_prompt = list(one.prompt.delta) == list(other.prompt.delta)
    else:
        has_same_prompt = one.state.messages == other.state.messages
    if not has_same_prompt:
        return "prompt"
    left_action, answered = one.action, other.action
    if left_action.response_token_ids is not None and answered.response_token_ids is not None:
        is_answered_alike = list(left_action.response_token_ids) == list(answered.response_token_ids)
    else:
        is_answered_alike = left_action.message == answered.message
    return None if is_answered_alike else "answer"


def _parting(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Return the first position at which two differ, the length of the shorter where it begins the longer one."""
    pairs = zip(one, other, strict=False)
    end = None if len(one) == len(other) else min(len(one), len(other))
    return next((at for at, (left, right) in enumerate(pairs) if left != right), end)
