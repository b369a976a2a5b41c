"""This file holds the command that queues tasks: ``submit``."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from agent_layer.cli.dispatch_words import count_of
from agent_layer.cli.submit_wait import wait_for
from agent_layer.dispatcher.client import connect
from agent_layer.dispatcher.known import Known, new_tasks
from agent_layer.dispatcher.tasks import line_places, num_launched, read_tasks
from agent_layer.recorder.shipping import ensure_shipper
from agent_layer.schema.task import Partial, Task
from agent_layer.settings import Settings
from agent_layer.store.store import open_store

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(submit)


def submit(
    context: typer.Context,
    tasks: Annotated[Path, typer.Argument(metavar="TASKS.jsonl", help="One JSON object on each line.")],
    *,
    group_size: Annotated[
        int | None, typer.Option(help="Usable rollouts of each task; else what its line says.")
    ] = None,
    launch: Annotated[
        int | None, typer.Option(help="Rollouts to launch for each task; those too slow to be needed are cancelled.")
    ] = None,
    partial: Annotated[
        Partial | None, typer.Option(help="What becomes of a group with too few usable rollouts: deliver at first.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(help="Higher goes first, across runs; else what its line says.")
    ] = None,
    run: Annotated[str | None, typer.Option(help="Else AGENT_LAYER_RUN.")] = None,
    split: Annotated[Literal["train", "eval"], typer.Option()] = "train",
    asking: Annotated[int, typer.Option("--round", min=0, help="Raise it to ask for the same tasks again.")] = 0,
    known: Annotated[
        Known, typer.Option(help="What becomes of a task whose input the run's split has: all, skip or refuse.")
    ] = "all",
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until all of them have ended. Ctrl-C leaves them queued.")
    ] = False,
) -> None:
    """Queue tasks for workers. Submitting a file twice queues it once.

    A line of the file is a task. Its input, which the agent is given, is enough; what only the scorer is given stands
    in 'grading'. Further fields: id, task_type, env, agent, scorer, rewards, group_size, launch, partial, sampling,
    limits, priority, needs, from_policy, expected_seconds, seed and labels.

        agent-layer submit TASKS.jsonl --run nightly --group-size 8 --wait
        a line:  {"input": "6 times 7"}
        another: {"input": "6 times 8", "grading": 48, "scorer": "my_scorer:score"}
    """
    found = read_tasks(tasks, run=run or context.obj.run, split=split, group_size=group_size)
    changes = {"launch": launch, "partial": partial, "priority": priority}
    changes = {name: value for name, value in changes.items() if value is not None}
    asked = [msgspec.structs.replace(task, **changes) for task in found]
    new = asked if known == "all" else _leave_out_known(context.obj, tasks, asked, known)
    with connect(context.obj) as dispatcher:
        groups = dispatcher.submit(new, round=asking)
        num_known = len(found) - len(new)
        left_out = f"; {count_of(num_known, 'known task')} left out" if num_known else ""
        typer.echo(f"submitted {count_of(len(groups), 'task')}, {_count(new)}, to run {found[0].run}{left_out}")
        if wait:
            ensure_shipper(context.obj)  # for logs of workers that were killed
            wait_for(dispatcher, groups, found[0].run)


def _count(tasks: list[Task]) -> str:
    num_needed, num_all = sum(task.group_size for task in tasks), sum(num_launched(task) for task in tasks)
    return count_of(num_all, "rollout") + (f" of which {num_needed:,} are needed" if num_needed < num_all else "")


def _leave_out_known(settings: Settings, path: Path, tasks: list[Task], known: Known) -> list[Task]:
    store = open_store(settings)

    def is_stored(task: Task, input_hash: str) -> bool:
        return store.count(run=task.run, split=task.split, input_hash=input_hash) > 0

    return new_tasks(tasks, line_places(path), known, is_stored)
