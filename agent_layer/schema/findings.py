"""Findings and alarms: what was noticed of steps and rollouts, and what makes training on a rollout doubtful.

One broken prefix or one empty answer is normal. Alarms are answers without tokens, prompts that fork, and layers that
disagree.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from agent_layer.schema.reward import TAMPERING, Reward
from agent_layer.schema.rollout import Outcome, Resumed
from agent_layer.schema.step import Action, Step, StepPart
from agent_layer.schema.training import ExcludedRollout
from agent_layer.schema.trajectory import ABANDONED, Trajectory

BREAK: Final = "prefix_break"
"""Finding of a prompt that does not continue earlier tokens although it should; ``prefix_break: CAUSE``."""
UNFINISHED: Final = "unfinished"
"""Finding of an answer whose end is not known to be one, such as ``unfinished:error``: it is not trained."""
UNREAD: Final = "unread"
"""Finding of a member of an answer that cannot be read; its name follows."""
DISAGREES: Final = "disagrees"
"""Finding of an answer whose ids do not agree with what follows; its step has no capture level above ``text``."""
_MAX_FORK_RATE = 0.2
"""Share of the steps of one trajectory; above it, samples repeat too much prompt."""

_MAX_NAMED: Final = 5
"""Steps that an alarm names."""


class TrajectoryAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """A reason to look at a trajectory before training on it."""

    kind: str
    """``zero_tokens``: the model answered nothing. ``no_tokens``: trained steps without ids or log-probabilities.
    ``forks``: too many prompts do not continue earlier tokens. ``turns``: the agent's framework reports calls that
    bypassed the gateway. ``tampering``: what the agent left behind tried to forge its judgement."""
    detail: str


def find_alarms(trajectory: Trajectory) -> list[TrajectoryAlarm]:
    """Return the alarms of a trajectory."""
    good = [step for step in trajectory.steps if step.status == "ok"]
    empty = [step for step in good if _has_nothing(step.action)]
    of_policy = [step for step in good if step.role == "policy"]
    untokened = [step for step in of_policy if step.capture_level != "tokens"]
    if (started := trajectory.started) is not None and (
        started.split == "eval" or (started.group_id is None and len(untokened) == len(of_policy))
    ):
        untokened = []  # nothing of it is to be trained: a traced program, or a model of another party
    broken = [step for step in trajectory.steps if any(prefix_break_cause(one) for one in step.findings)]
    forged = [reward.error or reward.name for reward in trajectory.rewards if reward.status == TAMPERING]
    found = [
        TrajectoryAlarm(kind="zero_tokens", detail=f"{_name_steps(empty)} answered nothing") if empty else None,
        TrajectoryAlarm(kind="no_tokens", detail=f"{_name_steps(untokened)} without token ids") if untokened else None,
        TrajectoryAlarm(
            kind="forks", detail=f"{_name_steps(broken)} of {len(trajectory.steps)} do not continue their prefix"
        )
        if len(broken) > _MAX_FORK_RATE * len(trajectory.steps)
        else None,
        _disagreement(good),
        TrajectoryAlarm(kind=TAMPERING, detail=f"the judged code tried to forge its reward: {forged[0]}")
        if forged
        else None,
    ]
    return [alarm for alarm in found if alarm is not None]


def prefix_break_cause(finding: str) -> str | None:
    """Return the cause in a finding of a broken prefix, or 'unknown'; None for other findings."""
    name, _, cause = finding.partition(":")
    return (cause.strip() or "unknown") if name == BREAK else None


NO_POLICY_CALL: Final = "no_policy_call"
"""Finding of a rollout of split train whose agent made no call to the policy."""
MISSED_FORM: Final = "missed_form"
"""Finding of a rollout whose agent failed on an answer without the form that it had asked for."""
SELF_INFLICTED: Final = "self_inflicted"
"""Finding of a rollout whose own commands ended a sandbox or used up its time: the policy's doing, so it counts."""
REFUSED: Final = "refused"
"""Finding of a rollout whose requests the gateway refused; ``refused: CODE``."""


def finding_kinds(record: object) -> Iterator[str]:
    """Yield the kinds of the findings in a record, with repetition: each is the part before the first colon."""
    match record:
        case StepPart() | Outcome():
            for finding in record.findings:
                yield finding.partition(":")[0]
        case Resumed():
            yield from [ABANDONED] if record.abandoned else []
        case ExcludedRollout():
            yield record.kind.partition(":")[0]
        case Reward():
            yield from [TAMPERING] if record.status == TAMPERING else []
        case _:
            return


def is_empty_answer(part: StepPart) -> bool:
    """Whether a complete answer has an empty choice."""
    return part.status == "ok" and (not part.actions or any(map(_has_nothing, part.actions)))


def _has_nothing(action: Action) -> bool:
    if action.response_token_ids is not None:
        return not action.response_token_ids
    message = action.message or {}
    return not (message.get("content") or message.get("tool_calls"))


def _disagreement(steps: Sequence[Step]) -> TrajectoryAlarm | None:
    """Return an alarm when a gateway saw some calls, but not every call that the agent's process reports."""
    seen = sum("gateway" in step.sources for step in steps)
    missed = [step for step in steps if "gateway" not in step.sources and not _INSIDE.isdisjoint(step.sources)]
    if not seen or not missed:
        return None
    detail = f"the gateway saw {seen} answers, but not {_name_steps(missed)}, which the agent's framework reports"
    return TrajectoryAlarm(kind="turns", detail=detail)


_INSIDE: Final[frozenset[str]] = frozenset({"hook", "handler", "decorator"})


def _name_steps(steps: Iterable[Step]) -> str:
    """Name a few steps, and count the rest: a sentence is short, however long the rollout."""
    numbers = [str(step.index) for step in steps]
    if len(numbers) > _MAX_NAMED + 1:
        numbers[_MAX_NAMED:] = [f"and {len(numbers) - _MAX_NAMED} more"]
    return f"step{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
