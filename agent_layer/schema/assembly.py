"""This file holds how parts become steps: each field is taken from the highest authority that knows it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from agent_layer.schema.joining import join_spans
from agent_layer.schema.step import Action, Step, StepPart, StepState

__all__ = ["ABANDONED", "assemble_step", "assemble_steps", "num_choices_of"]

PartT = TypeVar("PartT", Action, StepState)

ABANDONED: Final = "abandoned"
"""Finding of a step that was done after the checkpoint from which its attempt went on."""

_AUTHORITY = {"gateway": 0, "hook": 1, "handler": 2, "decorator": 3, "otel": 4, "import": 5}
_OWN = frozenset({"unknown", "source", "phase", "at", "state", "actions", "findings", "schema_version"})
_SHARED = tuple(name for name in StepPart.__struct_fields__ if name not in _OWN and name in Step.__struct_fields__)


def num_choices_of(parts: Iterable[StepPart]) -> int:
    """Choices that the call has; 1 while its answer is not known."""
    return max((len(part.actions) for part in parts if part.actions), default=1)


def assemble_step(parts: Sequence[StepPart], choice: int = 0) -> Step:
    """Put one step together from all parts of one call.

    The result depends on the set of parts only: their order, and repeated ones, change nothing.

    Args:
        parts: [num_parts], at least one, all of the same call.
        choice: which of the call's choices.
    """
    ranked = sorted(parts, key=_rank)
    fields: dict[str, Any] = {name: _first(ranked, name) for name in _SHARED}
    fields["conversation"] = _first(sorted(ranked, key=_is_guess), "conversation")
    fields = {name: value for name, value in fields.items() if value is not None}
    ends = [part.at for part in ranked if part.phase == "end"]
    action = _merge(Action, [part.actions[choice] for part in ranked if part.actions and choice < len(part.actions)])
    fields |= {
        "choice": choice,
        "started_at": min(part.at for part in _of_best_source(ranked)),
        "ended_at": ends[0] if ends else None,
        "state": _merge(StepState, [part.state for part in ranked if part.state is not None]),
        "action": action,
        "sources": sorted({part.source for part in ranked}, key=_AUTHORITY.__getitem__),
        "findings": sorted({finding for part in ranked for finding in part.findings}),
        "unknown": {key: value for part in reversed(ranked) for key, value in part.unknown.items()},
    }
    return Step(**fields)


def assemble_steps(parts: Iterable[StepPart], abandoned: Collection[str] = ()) -> list[Step]:
    """Put all steps of one trajectory together, in order of start, then call id, then choice.

    Args:
        parts: of all calls.
        abandoned: ids of calls that a resume left behind; whatever became of them, their steps are ``aborted``.
    """
    by_call: defaultdict[str, list[StepPart]] = defaultdict(list)
    for part in join_spans(list(parts)):
        by_call[part.call_id].append(part)
    steps = [
        assemble_step(call_parts, choice)
        for call_parts in by_call.values()
        for choice in range(num_choices_of(call_parts))
    ]
    steps.sort(key=lambda step: (step.started_at, step.call_id, step.choice))
    counted = [_abandon(step) if step.call_id in abandoned else step for step in steps]
    return [msgspec.structs.replace(step, index=index) for index, step in enumerate(counted)]


def _abandon(step: Step) -> Step:
    return msgspec.structs.replace(step, status="aborted", findings=sorted({*step.findings, ABANDONED}))


def _rank(part: StepPart) -> tuple[int, bool, float]:
    """Highest authority first; of one layer the end before the start, because it knows more."""
    return _AUTHORITY[part.source], part.phase == "start", part.at


def _is_guess(part: StepPart) -> bool:
    """Whether conversations are told apart by their prompts only; a program may name its own, such as a thread."""
    return part.source == "gateway"


def _of_best_source(ranked: Sequence[StepPart]) -> list[StepPart]:
    return [part for part in ranked if part.source == ranked[0].source]


def _first(records: Iterable[object], name: str) -> object:
    return next((value for record in records if (value := getattr(record, name)) is not None), None)


def _merge(kind: type[PartT], records: Sequence[PartT]) -> PartT:
    """First known value of each field; a default that is empty counts as not known."""
    values: dict[str, Any] = {name: _first_known(records, name) for name in kind.__struct_fields__}
    return kind(**{name: value for name, value in values.items() if value is not None})


def _first_known(records: Iterable[object], name: str) -> object:
    return next((value for record in records if (value := getattr(record, name)) not in (None, {})), None)
