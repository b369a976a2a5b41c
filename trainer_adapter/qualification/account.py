"""The account of a rollout: every token that the engine sampled is trained, or has a cause for which it is not. Pure.

Each answer of the engine is matched to the step with the same prompt whose answer it begins with; what matches no step
was never recorded. Of a whole answer that was cut off, the gateway knows neither prompt nor tokens: it is matched to an
aborted step without both. So ``sampled = trained + sum(lost)`` holds by construction, whatever happened between.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from agent_layer.local import ReceivedCall
from agent_layer.schema import ExcludedRollout, Step, Trajectory, prefix_break_cause
from trainer_adapter.data import SampleSet

CUT: Final = "cut_stream"
"""The agent left before the answer had ended."""
UNRECORDED: Final = "unrecorded"
"""The engine answered, and no step holds it."""
TWICE: Final = "trained_twice"
"""A negative number: tokens in more than one loss mask."""
SHORT: Final = "incomplete_step"
"""Tokens behind those of the step, which ended normally."""


class EngineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One choice of one call, as the engine counted it."""

    prompt_token_ids: Sequence[int]
    """[num_prompt_tokens]"""
    token_ids: Sequence[int]
    """[num_sampled_tokens]"""
    is_whole: bool = True
    """False: the asker left before the engine had ended."""


def list_answers(calls: Iterable[ReceivedCall]) -> list[EngineAnswer]:
    """Return what a scripted engine sampled, one for each choice of each call."""
    return [
        EngineAnswer(prompt_token_ids=call.prompt_token_ids, token_ids=ids, is_whole=call.finished)
        for call in calls
        for ids in call.token_ids
    ]


class TokenAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the sampled tokens of one rollout."""

    sampled: int
    trained: int
    """Sum of all loss masks."""
    lost: dict[str, int]
    """Tokens by cause, without zeros; their sum is ``sampled - trained``."""
    forks: dict[str, int]
    """Steps whose prompt breaks the tokens that it should continue, by cause."""
    findings: list[str]
    """All other findings, of steps and of the rollout, sorted."""
    agents: dict[str, int]
    """Trained tokens of each agent that has a name."""
    num_rows: int
    longest_row: int
    row_tokens: int


def account_tokens(
    answers: Iterable[EngineAnswer], trajectory: Trajectory, found: SampleSet | ExcludedRollout
) -> TokenAccount:
    """Account for each token that the engine sampled.

    Args:
        answers: of all calls of the rollout.
        trajectory: what was recorded of it.
        found: its samples, or why it has none.
    """
    samples = [] if isinstance(found, ExcludedRollout) else found.samples
    excluded = f"excluded: {found.kind}" if isinstance(found, ExcludedRollout) else None
    in_masks: Counter[tuple[str, int]] = Counter()
    for sample in samples:
        for ref in sample.steps:
            in_masks[ref.call_id, ref.choice] += sum(sample.loss_mask[ref.start : ref.start + ref.num_tokens])
    by_agent = Counter[str | None]()
    for sample in samples:
        by_agent[sample.agent] += sum(sample.loss_mask)
    trained = by_agent.total()
    unmatched: defaultdict[tuple[int, ...], list[Step]] = defaultdict(list)
    for step in trajectory.steps:
        unmatched[tuple(step.prompt_token_ids or ())].append(step)
    unknown = [step for step in unmatched.pop((), []) if step.status == "aborted"]
    sampled, lost = 0, Counter[str]()
    for answer in answers:
        num_sampled = len(answer.token_ids)
        sampled += num_sampled
        step = _take_step(unmatched[tuple(answer.prompt_token_ids)], answer.token_ids)
        if step is None and not answer.is_whole and unknown:
            step = unknown.pop(0)
        if step is None:
            lost[UNRECORDED] += num_sampled
            continue
        num_trained = in_masks.pop((step.call_id, step.choice), 0)
        num_extra = max(0, num_trained - num_sampled)
        lost[TWICE] -= num_extra
        lost[_find_cause(step, excluded)] += num_sampled - num_trained + num_extra
    lost[TWICE] -= in_masks.total()  # of steps that no answer of the engine belongs to
    lengths = [len(sample.prompt_ids) + len(sample.response_ids) for sample in samples]
    causes = Counter(cause for step in trajectory.steps for one in step.findings if (cause := prefix_break_cause(one)))
    others = {one for step in trajectory.steps for one in step.findings if prefix_break_cause(one) is None}
    others |= set(trajectory.outcome.findings) if trajectory.outcome is not None else set()
    return TokenAccount(
        sampled=sampled,
        trained=trained,
        lost={cause: number for cause, number in sorted(lost.items()) if number},
        forks=dict(sorted(causes.items())),
        findings=sorted(others),
        agents={agent: number for agent, number in by_agent.items() if agent is not None and number},
        num_rows=len(lengths),
        longest_row=max(lengths, default=0),
        row_tokens=sum(lengths),
    )


def _take_step(steps: list[Step], token_ids: Sequence[int]) -> Step | None:
    """Remove and return the step that holds most of an answer; None: none holds its beginning."""
    sampled = tuple(token_ids)
    held = [(step, tuple(step.action.response_token_ids or ())) for step in steps]
    fitting = [(len(ids), position) for position, (_, ids) in enumerate(held) if sampled[: len(ids)] == ids]
    return steps.pop(max(fitting)[1]) if fitting else None


def _find_cause(step: Step, excluded: str | None) -> str:
    if step.role == "aux":
        return "aux"
    if step.status == "aborted":
        return CUT
    if step.status != "ok":
        return step.status or "unfinished"
    return excluded or SHORT
