"""This file holds the command that queues tasks: ``submit``."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agent_layer.dispatcher.client import Dispatcher, connect
from agent_layer.dispatcher.known import Known, new_tasks
from agent_layer.dispatcher.records import GroupState
from agent_layer.dispatcher.tasks import line_places, read_tasks
from agent_layer.errors import AgentFailedError
from agent_layer.recorder.shipping import ensure_shipper
from agent_layer.schema.task import Task
from agent_layer.settings import Settings
from agent_layer.store.store import open_store

__all__ = ["register"]

_REDRAW_SECONDS = 0.5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(submit)


def submit(
    context: typer.Context,
    tasks: Annotated[Path, typer.Argument(metavar="TASKS.jsonl", help="One JSON object on each line.")],
    *,
    group_size: Annotated[int | None, typer.Option(help="Rollouts of each task; else what its line says.")] = None,
    run: Annotated[str | None, typer.Option(help="Else AGENT_LAYER_RUN.")] = None,
    split: Annotated[Literal["train", "eval"], typer.Option()] = "train",
    asking: Annotated[int, typer.Option("--round", min=0, help="Raise it to ask for the same tasks again.")] = 0,
    known: Annotated[
        Known, typer.Option(help="What becomes of a task whose input the run's split has: all, skip or refuse.")
    ] = "all",
    wait: Annotated[bool, typer.Option("--wait", help="Stay until all of them have ended.")] = False,
) -> None:
    """Queue tasks for workers. Submitting a file twice queues it once."""
    found = read_tasks(tasks, run=run or context.obj.run, split=split, group_size=group_size)
    new = found if known == "all" else _leave_out_known(context.obj, tasks, found, known)
    dispatcher = connect(context.obj)
    groups = dispatcher.submit(new, round=asking)
    num_rollouts = sum(task.group_size for task in new)
    left_out = f"; {len(found) - len(new)} known tasks were left out" if len(new) < len(found) else ""
    typer.echo(f"submitted {len(groups)} tasks, {num_rollouts} rollouts, to run {found[0].run}{left_out}")
    if wait:
        ensure_shipper(context.obj)  # for logs of workers that were killed
        _report(_watch(dispatcher, groups, num_rollouts))


def _leave_out_known(settings: Settings, path: Path, tasks: list[Task], known: Known) -> list[Task]:
    store = open_store(settings)

    def is_stored(task: Task, input_hash: str) -> bool:
        return store.count(run=task.run, split=task.split, input_hash=input_hash) > 0

    return new_tasks(tasks, line_places(path), known, is_stored)


def _watch(dispatcher: Dispatcher, group_ids: list[str], num_rollouts: int) -> list[GroupState]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("rollouts ended", total=num_rollouts)
        while True:
            states = dispatcher.wait(group_ids, timeout=_REDRAW_SECONDS)
            progress.update(bar, completed=num_rollouts - sum(group.num_open for group in states))
            if all(group.is_closed for group in states):
                return states


def _report(states: list[GroupState]) -> None:
    num_rollouts = sum(group.group_size for group in states)
    num_accepted = sum(group.num_accepted or 0 for group in states)
    typer.echo(f"accepted {num_accepted} of {num_rollouts} rollouts")
    if num_accepted < num_rollouts:
        raise AgentFailedError(
            f"submit: expected every rollout to be accepted, but {num_rollouts - num_accepted} died or were cancelled;"
            " 'agent-layer dead' shows their errors"
        )
