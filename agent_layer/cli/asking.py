"""This file holds the options by which commands say which trajectories they mean, written once for all of them."""

import inspect
import time
from collections.abc import Callable
from typing import Annotated, Final, cast

import typer

from agent_layer.store.filters import Filters
from agent_layer.store.times import parse_range, parse_time

__all__ = ["Asked", "filters_of", "with_filters"]

Asked = dict[str, object]
"""Filters as they were typed; those that were not are absent."""

_RANGE_HELP = "Both ends included, one may be left out: 5.., ..0.5, 10..20, or one number."
_TIME_HELP = "RFC 3339 in UTC, or so long ago: 90s, 2h, 3d."

_OPTIONS: Final[dict[str, tuple[type, object]]] = {
    "run": (str, typer.Option()),
    "split": (str, typer.Option(help="train or eval.")),
    "task": (str, typer.Option()),
    "task_type": (str, typer.Option()),
    "step": (int, typer.Option(min=0, help="Only this step of each; those without it are left out.")),
    "policy": (str, typer.Option(help=f"Policy versions. {_RANGE_HELP}")),
    "reward": (str, typer.Option(help=f"Reward of the rollout. {_RANGE_HELP}")),
    "status": (str, typer.Option(help="completed, truncated, failed, lost, ...")),
    "agent": (str, typer.Option(help="Name of an agent that made a call.")),
    "since": (str, typer.Option(help=f"Started then or later. {_TIME_HELP}")),
    "until": (str, typer.Option(help=f"Started then or earlier. {_TIME_HELP}")),
    "accepted": (bool, typer.Option("--accepted/--any", help="Only what counts for its rollout.")),
}
_SUBJECTS: Final = {"policy": "policy range", "reward": "reward range"}


def with_filters(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command an option for each filter; it takes those that were typed as ``asked``."""

    def run(**values: object) -> None:
        asked = {name: value for name in _OPTIONS if (value := values.pop(name)) not in (None, False)}
        command(**values, asked=asked)

    own = [one for name, one in inspect.signature(command).parameters.items() if name != "asked"]
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if kind is bool else None,
            annotation=Annotated[kind if kind is bool else kind | None, option],
        )
        for name, (kind, option) in _OPTIONS.items()
    ]
    shown = inspect.Signature([*own, *options])
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = shown  # pyright: ignore[reportFunctionMemberAccess]  # what inspect.signature reads
    run.__annotations__ = {name: one.annotation for name, one in shown.parameters.items()}
    return run


def filters_of(asked: Asked, now: float | None = None) -> Filters:
    """Turn what was typed into filters; spans such as ``2h`` count back from ``now`` (None: this moment).

    Raises: BadInputError: a range or a time is not one.
    """
    at = time.time() if now is None else now
    ranges = {name: parse_range(str(asked[name]), subject) for name, subject in _SUBJECTS.items() if name in asked}
    times = {name: parse_time(str(asked[name]), name, at) for name in ("since", "until") if name in asked}
    return cast("Filters", {**asked, **ranges, **times})
