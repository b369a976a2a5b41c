"""This file holds the options by which commands are told which trajectories are meant: the same for all of them."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, cast, get_type_hints

import typer

from agent_layer.errors import BadInputError
from agent_layer.store.index import Filters, Which
from agent_layer.times import parse_range

_RANGE_HELP = "10..20 with both ends, 5.. or ..0.5, or one number."
_TIME_HELP = "RFC 3339 in UTC, or so long ago: 90s, 2h, 3d."


def _options(
    *,
    run: Annotated[str | None, typer.Option(help="Name of a training or evaluation run.")] = None,
    split: Annotated[str | None, typer.Option(help="train, or eval for what nobody trains on.")] = None,
    task: Annotated[str | None, typer.Option(help="Id of a task, whichever run tried it.")] = None,
    task_type: Annotated[str | None, typer.Option(help="Kind of task, as the task says it.")] = None,
    input_hash: Annotated[str | None, typer.Option(help="Hash of the task's input, as rows show it.")] = None,
    env: Annotated[str | None, typer.Option(help="Name of the environment that it ran in.")] = None,
    env_version: Annotated[str | None, typer.Option(help="Version of that environment.")] = None,
    policy: Annotated[str | None, typer.Option(help=f"Some token is of such a policy version. {_RANGE_HELP}")] = None,
    reward: Annotated[str | None, typer.Option(help=f"Reward of the rollout. {_RANGE_HELP}")] = None,
    status: Annotated[
        str | None, typer.Option(help="running, completed, truncated, failed, cancelled, dead or lost.")
    ] = None,
    cause: Annotated[str | None, typer.Option(help="Who brought the end about: policy, infra, verifier, user.")] = None,
    agent: Annotated[str | None, typer.Option(help="Name of an agent that made a call.")] = None,
    tool: Annotated[str | None, typer.Option(help="Name of a tool that was asked for or answered.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="NAME=VALUE; may be repeated, then all must hold.")] = None,
    since: Annotated[str | None, typer.Option(help=f"Started then or later. {_TIME_HELP}")] = None,
    until: Annotated[str | None, typer.Option(help=f"Started then or earlier. {_TIME_HELP}")] = None,
    accepted: Annotated[
        bool, typer.Option("--accepted/--any", help="Only the attempt that counts for its rollout, or all.")
    ] = False,
) -> Filters:
    return Filters(
        run=run,
        split=split,
        task=task,
        task_type=task_type,
        input_hash=input_hash,
        env=env,
        env_version=env_version,
        policy=None if policy is None else parse_range(policy, "policy range"),
        reward=None if reward is None else parse_range(reward, "reward range"),
        status=status,
        cause=cause,
        agent=agent,
        tool=tool,
        labels=_labels(label or []),
        since=since,
        until=until,
        accepted=accepted or None,
    )


_HINTS = get_type_hints(_options, include_extras=True)
_PARAMETERS = [one.replace(annotation=_HINTS[one.name]) for one in inspect.signature(_options).parameters.values()]


def takes_filters(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all of these options; it is handed them as ``filters``, a ``Filters``, in their place."""
    own = inspect.signature(command, eval_str=True).parameters
    names = {one.name for one in _PARAMETERS}

    @wraps(command)
    def run(*args: object, **given: object) -> None:
        told = cast("Mapping[str, str | None]", {name: given.pop(name) for name in names & given.keys()})
        filters = _options(**told)  # pyright: ignore[reportArgumentType]  # typer has checked them
        command(*args, **given, filters=filters)

    first = [one for one in own.values() if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    rest = [one for one in own.values() if one.kind is inspect.Parameter.KEYWORD_ONLY and one.name != "filters"]
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature([*first, *_PARAMETERS, *rest])  # pyright: ignore[reportAttributeAccessIssue]  # functions take one
    return run


def parse_which(text: str) -> Which:
    """Read which step is meant: ``3``, ``last``, or ``tool:NAME``.

    Raises: BadInputError: it is none of these.
    """
    kind, _, name = text.partition(":")
    if kind == "tool" and name:
        return "tool", name
    if text == "last":
        return "last"
    if text.isdecimal():
        return int(text)
    raise BadInputError(f"step {text!r}: expected an index from 0, 'last' or tool:NAME; write one of these")


def _labels(told: list[str]) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    for text in told:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise BadInputError(f"label {text!r}: expected NAME=VALUE; write for example --label team=search")
        labels[name] = value
    return labels or None
