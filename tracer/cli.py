"""The command ``trace``: captures a program without a change to it."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.settings import Settings
from tracer.rollouts import rollout
from tracer.session import flush, init
from tracer.subprocess import Program

app = typer.Typer(add_completion=False)


@app.command(context_settings={"allow_interspersed_args": False})  # options behind the program are its own
def trace(
    context: typer.Context,
    command: Annotated[list[str], typer.Argument(help="The program and its arguments, behind '--'.")],
    *,
    task: Annotated[str, typer.Option(help="Id of the task that the program tries; default: the program's name.")] = "",
    task_type: Annotated[str, typer.Option(help="What kind of task it is.")] = "default",
    run: Annotated[str, typer.Option(help="Default: AGENT_LAYER_RUN.")] = "",
) -> int:
    """Run a program and record it as one trajectory: trace -- python agent.py … ."""
    settings: Settings = context.obj
    if shutil.which(command[0]) is None:
        raise BadInputError(f"trace: expected a program to run, found no {command[0]!r} on PATH; check its name")
    init(settings)
    program = Program(command, settings)
    block = rollout(task or _name_task(command), task_type=task_type, run=run or settings.run)
    with (
        suppress(AgentFailedError),
        block as opened,
    ):  # a failed program is recorded as failed, and its status is returned
        program.run(opened)
    flush()
    typer.echo(f"trajectory {program.trajectory_id}: agent-layer show {program.trajectory_id}", err=True)
    return program.status


def _name_task(command: list[str]) -> str:
    """Name a program after its script, if it has one."""
    names = [Path(word).name for word in command]
    scripts = [name for name in names[1:] if name.endswith((".py", ".sh"))]
    letters = [letter if letter.isalnum() else "-" for letter in (scripts or names)[0].partition(".")[0]]
    return "".join(letters).strip("-")[:100] or "program"
