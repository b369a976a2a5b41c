"""Command-line options that select trajectories, shared by all commands that take filters."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Annotated, cast, get_type_hints

import typer

from agent_layer.errors import BadInputError
from agent_layer.store.index.filters import Filters, Which
from agent_layer.store.segments.fields import FIELDS
from agent_layer.times import parse_range

_RANGE_HELP = "10..20 with both ends, 5.. or ..0.5, or one number."
_MAX_DIGITS = 18
"""Digits of the index of a step; Redis and the segments know no larger number."""
_TIME_HELP = "RFC 3339 in UTC, or a span before now: 90s, 2h, 3d."


def _other_filters(
    *,
    policy: Annotated[
        str | None, typer.Option(help=f"Policy version that sampled at least one token. {_RANGE_HELP}")
    ] = None,
    reward: Annotated[str | None, typer.Option(help=f"Reward of the rollout. {_RANGE_HELP}")] = None,
    label: Annotated[list[str] | None, typer.Option(help="NAME=VALUE; may be repeated, then all must hold.")] = None,
    since: Annotated[str | None, typer.Option(help=f"Started then or later. {_TIME_HELP}")] = None,
    until: Annotated[str | None, typer.Option(help=f"Started then or earlier. {_TIME_HELP}")] = None,
    accepted: Annotated[
        bool, typer.Option("--accepted/--any", help="Only the attempt that counts for its rollout, or all.")
    ] = False,
) -> Filters:
    """Read the filters that are more than one value of one field."""
    return Filters(
        policy=None if policy is None else parse_range(policy, "policy range"),
        reward=None if reward is None else parse_range(reward, "reward range"),
        labels=_parse_labels(label or []),
        since=since,
        until=until,
        accepted=accepted or None,
    )


_VALUE_OPTIONS = [
    inspect.Parameter(
        field.filter,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, typer.Option(help=field.help)],
    )
    for field in FIELDS
    if field.filter is not None
]
_HINTS = get_type_hints(_other_filters, include_extras=True)
_OPTIONS = [
    *_VALUE_OPTIONS,
    *(one.replace(annotation=_HINTS[one.name]) for one in inspect.signature(_other_filters).parameters.values()),
]


def takes_filters(command: Callable[..., None]) -> Callable[..., None]:
    """Add the filter options to a command, which receives them as one argument: ``filters``, a ``Filters``."""
    return make_takes_filters(accepted=False)(command)


def make_takes_filters(*, accepted: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return ``takes_filters`` with another default of ``--accepted/--any``."""
    options = [one.replace(default=accepted) if one.name == "accepted" else one for one in _OPTIONS]
    return partial(_add_options, options)


def _add_options(options: Sequence[inspect.Parameter], command: Callable[..., None]) -> Callable[..., None]:
    own = inspect.signature(command, eval_str=True).parameters

    @wraps(command)
    def run(*args: object, **given: object) -> None:
        values = {one.name: given.pop(one.name) for one in _VALUE_OPTIONS if one.name in given}
        others = {name: given.pop(name) for name in _HINTS.keys() & given.keys()}
        filters = {**values, **_other_filters(**others)}  # pyright: ignore[reportArgumentType]  # typer has checked them
        command(*args, **given, filters=cast("Filters", filters))

    first = [one for one in own.values() if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    rest = [one for one in own.values() if one.kind is inspect.Parameter.KEYWORD_ONLY and one.name != "filters"]
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature([*first, *options, *rest])  # pyright: ignore[reportAttributeAccessIssue]  # functions take one
    return run


def parse_which(text: str) -> Which:
    """Parse the choice of a step: ``3``, ``last``, or ``tool:NAME``.

    Raises: BadInputError: it is none of these.
    """
    kind, _, name = text.partition(":")
    if kind == "tool" and name:
        return "tool", name
    if text == "last":
        return "last"
    if text.isdecimal() and len(text) <= _MAX_DIGITS:
        return int(text)
    shown = f"{text[:_MAX_DIGITS]}…" if len(text) > _MAX_DIGITS else text
    raise BadInputError(f"step {shown!r}: expected an index from 0, 'last' or tool:NAME; write one of these")


def _parse_labels(texts: list[str]) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise BadInputError(f"label {text!r}: expected NAME=VALUE; write for example --label team=search")
        labels[name] = value
    return labels or None
