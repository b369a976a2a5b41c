"""Command ``mix``: the weights of a run's sources, changed while it runs."""

from typing import Annotated

import typer

from agent_layer.errors import BadInputError
from agent_layer.settings import Settings
from trainer_adapter.tasks.mix import MixFile, mix_path


def mix(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="Name of the run.")],
    weights: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE=WEIGHT]...", help="None: only show the mix.")
    ] = None,
) -> None:
    """Show the weights of a run's task sources, or change them from the next submitted task on.

    A source's share of the tasks is its weight by the sum of all; 0 ends a source until it is raised again. Works on
    the machine of the trainer, while it runs or not.

    agent-layer mix nightly repair=2 math=0
    """
    settings: Settings = context.obj
    file = MixFile(mix_path(settings, run))
    found = file.change(dict(map(_parse, weights))) if weights else file.read()
    total = sum(found.weights.values())
    for name, weight in found.weights.items():
        typer.echo(f"{name:24} {weight:8g} {weight / total:7.1%}")


def _parse(change: str) -> tuple[str, float]:
    name, _, weight = change.rpartition("=")
    try:
        return name, float(weight)
    except ValueError as error:
        raise BadInputError(f"mix: expected SOURCE=WEIGHT such as repair=2, found {change!r}; correct it") from error
