"""This file holds what may be asked of trajectories, and what that means for rows and for sorted sets."""

import time
from typing import NamedTuple, TypeAlias, TypedDict, get_args

from agent_layer.errors import BadInputError
from agent_layer.schema.rollout import RolloutStatus
from agent_layer.schema.task import Split
from agent_layer.store.index import Condition, Span
from agent_layer.store.keys import Keys
from agent_layer.store.times import parse_time

__all__ = ["Filters", "Lead", "Range", "conditions_of", "leads_of"]

Range: TypeAlias = tuple[float | None, float | None]
"""Both ends belong to it; None is an open end. What is not known never lies in a range."""


class Filters(TypedDict, total=False):
    """What a trajectory must be. None, like a filter that is left out, takes all."""

    run: str | None
    split: str | None
    task: str | None
    task_type: str | None
    status: str | None
    agent: str | None
    """Name of an agent that made at least one of its calls."""
    accepted: bool | None
    step: int | None
    """Index of a step that it must have."""
    policy: Range | None
    """What it must meet somewhere between its oldest and its newest policy version."""
    reward: Range | None
    since: float | str | None
    """Started then or later: seconds since the epoch, RFC 3339, or a span before now such as ``2h``."""
    until: float | str | None
    """Started then or earlier."""


class Lead(NamedTuple):
    """A sorted set that holds every trajectory of an answer, and the field that it is sorted by."""

    span: Span
    sorted_by: str


_EXACT = {
    "run": ("run", "run"),
    "split": ("split", "split"),
    "task": ("task_id", "task"),
    "task_type": ("task_type", "type"),
    "status": ("status", "status"),
}
"""Filter → (field of the row, index)."""

_CHOICES: dict[str, tuple[str, ...]] = {"split": get_args(Split), "status": get_args(RolloutStatus)}

_SORTED = ("reward", "policy_min", "policy_max")
"""Fields with an index of their own."""


def conditions_of(filters: Filters) -> list[Condition]:
    """What the row of a trajectory must be to pass all filters.

    Raises: BadInputError: there is no such filter, or it cannot have this value.
    """
    _check(filters)
    conditions = [Condition(_EXACT[name][0], "is", value) for name, value in _exact(filters).items()]
    for field, (low, high) in _bounds(filters).items():
        conditions += [Condition(field, "least", low)] if low is not None else []
        conditions += [Condition(field, "most", high)] if high is not None else []
    if (accepted := filters.get("accepted")) is not None:
        conditions.append(Condition("accepted", "is" if accepted else "isnt", "1"))
    if (agent := filters.get("agent")) is not None:
        conditions.append(Condition("agents", "has", agent))
    return conditions


def leads_of(filters: Filters, order_field: str, keys: Keys) -> list[Lead]:
    """The sorted sets that an answer can be read from; at least one is sorted by the field of the order."""
    bounds = _bounds(filters)
    indexes = [("all", ""), *((_EXACT[name][1], value) for name, value in _exact(filters).items())]
    indexes += [("accepted", "")] if filters.get("accepted") else []
    started = _ends(bounds.get("started_at"))
    leads = [Lead(Span(keys.by(*index), *started), "started_at") for index in indexes]
    fields = [field for field in _SORTED if field in bounds or field == order_field]
    return leads + [Lead(Span(keys.by(field), *_ends(bounds.get(field))), field) for field in fields]


def _check(filters: Filters) -> None:
    if unknown := filters.keys() - Filters.__annotations__.keys():
        known = ", ".join(Filters.__annotations__)
        raise BadInputError(f"filter {min(unknown)!r}: expected one of {known}; correct it or leave it out")
    for name, choices in _CHOICES.items():
        if filters.get(name) not in (None, *choices):
            raise BadInputError(
                f"{name} {filters.get(name)!r}: expected one of {', '.join(choices)}; choose one of these"
            )


def _exact(filters: Filters) -> dict[str, str]:
    return {name: str(value) for name in _EXACT if (value := filters.get(name)) is not None}


def _bounds(filters: Filters) -> dict[str, Range]:
    """Field → the range that its value must lie in."""
    oldest, newest = filters.get("policy") or (None, None)
    step = filters.get("step")
    bounds: dict[str, Range] = {
        "started_at": (_moment(filters.get("since"), "since"), _moment(filters.get("until"), "until")),
        "reward": filters.get("reward") or (None, None),
        "policy_max": (oldest, None),
        "policy_min": (None, newest),
        "num_steps": (None if step is None else step + 1, None),
    }
    return {field: ends for field, ends in bounds.items() if ends != (None, None)}


def _moment(value: float | str | None, subject: str) -> float | None:
    return parse_time(value, subject, time.time()) if isinstance(value, str) else value


def _ends(ends: Range | None) -> tuple[float, float]:
    low, high = ends or (None, None)
    return float("-inf") if low is None else low, float("inf") if high is None else high
