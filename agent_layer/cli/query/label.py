"""Command with which people label stored trajectories: ``label``."""

from typing import Annotated

import typer

from agent_layer.cli.ui.links import print_link
from agent_layer.errors import BadInputError
from agent_layer.store import make_label, open_store, read_known_labels


def label(
    context: typer.Context,
    trajectory: Annotated[str, typer.Argument(help="Its id, as 'query' lists it.")],
    labels: Annotated[list[str] | None, typer.Argument(help="Each NAME=VALUE.", metavar="[NAME=VALUE]...")] = None,
    *,
    withdraw: Annotated[list[str] | None, typer.Option(help="NAME of a label to withdraw; may be repeated.")] = None,
    comment: Annotated[str | None, typer.Option(help="Reason for the labels.")] = None,
) -> None:
    """Label a trajectory, as 'query --label' finds it. Earlier labels stay, superseded.

    Example: label TRAJECTORY verdict=wrong cause=tool --comment 'read the wrong file'.
    """
    given: dict[str, str | None] = {**dict(map(_read_label, labels or [])), **dict.fromkeys(withdraw or [])}
    if not given:
        raise BadInputError("label: expected NAME=VALUE or --withdraw NAME, found neither; add one")
    store = open_store(context.obj)
    row, known = store.row(trajectory), read_known_labels(store.redis, store.keys, trajectory)
    for name, value in given.items():  # all of them, or none
        make_label(row, name, value, {}, known, "")
    for name, value in given.items():
        store.label(trajectory, name=name, value=value, comment=comment)
    store.writer.await_shipped(f"label of trajectory {trajectory!r}")
    now = store.row(trajectory).labels
    for name in given:
        typer.echo(f"{trajectory}: {name} {_shown(now.get(name))}{_describe_previous(row.labels.get(name))}")
    print_link(context.obj, "trajectory", trajectory)


def _read_label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if equals:
        return name, value
    raise BadInputError(f"label {text!r}: expected NAME=VALUE; write for example verdict=wrong")


def _shown(value: str | None) -> str:
    return "withdrawn" if value is None else f"= {value}"


def _describe_previous(before: str | None) -> str:
    return "" if before is None else f", {before!r} before"
