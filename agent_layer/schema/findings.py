"""This file holds what alarms about captured calls: answers without tokens, prompts that fork, layers that disagree.

One broken prefix or one empty answer is life; alarms tell of what makes training on a rollout doubtful.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.schema.step import Action, Step, StepPart
from agent_layer.schema.trajectory import Trajectory

__all__ = ["BREAK", "Alarm", "AlarmKind", "alarms_of", "cause_of_break", "is_empty"]

BREAK: Final = "prefix_break"
"""Finding of a prompt that should have continued earlier tokens and does not; a cause may follow behind a colon."""
_HIGHEST_FORK_RATE = 0.2
"""Of the steps of one trajectory; above, its samples repeat more prompt than they need."""

AlarmKind: TypeAlias = Literal["zero_tokens", "no_tokens", "forks", "turns"]
"""``zero_tokens``: the model answered nothing. ``no_tokens``: trained steps without ids or log-probabilities.
``forks``: too many prompts continue nothing. ``turns``: the agent's framework tells of
calls that went past the gateway."""


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """Something about a trajectory that a person should look at before it is trained on."""

    kind: AlarmKind
    detail: str


def alarms_of(trajectory: Trajectory) -> list[Alarm]:
    """Look through all steps of a trajectory."""
    good = [step for step in trajectory.steps if step.status == "ok"]
    empty = [step for step in good if _has_nothing(step.action)]
    untokened = [step for step in good if step.role == "policy" and step.capture_level != "tokens"]
    broken = [step for step in trajectory.steps if any(cause_of_break(one) for one in step.findings)]
    found = [
        Alarm(kind="zero_tokens", detail=f"{_these(empty)} answered nothing") if empty else None,
        Alarm(kind="no_tokens", detail=f"{_these(untokened)} without token ids") if untokened else None,
        Alarm(kind="forks", detail=f"{_these(broken)} of {len(trajectory.steps)} do not continue their prefix")
        if len(broken) > _HIGHEST_FORK_RATE * len(trajectory.steps)
        else None,
        _disagreement(good),
    ]
    return [alarm for alarm in found if alarm is not None]


def cause_of_break(finding: str) -> str | None:
    """Why a prefix broke, where the finding says that one did: its cause, or 'unknown'."""
    name, _, cause = finding.partition(":")
    return (cause.strip() or "unknown") if name == BREAK else None


def is_empty(part: StepPart) -> bool:
    """Whether a whole answer has a choice in which the model said nothing."""
    return part.status == "ok" and (not part.actions or any(map(_has_nothing, part.actions)))


def _has_nothing(action: Action) -> bool:
    if action.response_token_ids is not None:
        return not action.response_token_ids
    message = action.message or {}
    return not (message.get("content") or message.get("tool_calls"))


def _disagreement(steps: Sequence[Step]) -> Alarm | None:
    """Where a gateway sees calls, it should see each that the framework tells of: else one went past it, or is two."""
    seen = sum("gateway" in step.sources for step in steps)
    missed = [step for step in steps if "gateway" not in step.sources and not _INSIDE.isdisjoint(step.sources)]
    if not seen or not missed:
        return None
    detail = f"the gateway saw {seen} answers, but not {_these(missed)}, of which the agent's framework tells"
    return Alarm(kind="turns", detail=detail)


_INSIDE: Final[frozenset[str]] = frozenset({"hook", "handler", "decorator"})


def _these(steps: Iterable[Step]) -> str:
    numbers = [str(step.index) for step in steps]
    return f"step{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
