"""This file holds where the commands of the dispatcher come from: tasks, rollouts, groups, runs, workers, dead."""

import typer

from agent_layer.cli import dispatch_dead, dispatch_groups, dispatch_runs, dispatch_work, dispatch_workers

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for part in (dispatch_work, dispatch_groups, dispatch_runs, dispatch_workers, dispatch_dead):
        part.register(app)
