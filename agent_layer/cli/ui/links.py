"""Links to the page, on standard error: what other programs read on standard output has none."""

import typer

from agent_layer.settings import Settings
from agent_layer.store import Filters
from agent_layer.view import Thing, link_to


def print_link(
    settings: Settings, thing: Thing, *names: str | int, filters: Filters | None = None, order: str = ""
) -> None:
    """Print where the page shows a thing, if a page is known; see ``make_link``."""
    if (link := link_to(settings, thing, *names, filters=filters, order=order)) is not None:
        typer.echo(f"view: {link}", err=True)


def print_run_link(settings: Settings, run: str | None, otherwise: Thing) -> None:
    """Print the link of a run; without one, of what all runs share."""
    if run is None:
        print_link(settings, otherwise)
    else:
        print_link(settings, "run", run)


def print_step_link(settings: Settings, trajectory: str, step: int | None) -> None:
    """Print the link of a step; without one, of the trajectory."""
    if step is None:
        print_link(settings, "trajectory", trajectory)
    else:
        print_link(settings, "step", trajectory, step)
