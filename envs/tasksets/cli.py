"""Commands ``tasksets``: what is registered, tasks as a file, and the gate of a task set."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.infra import replace_file
from agent_layer.local import AllowNetwork, ImageMap, SharedVerifier, read_task_options
from agent_layer.schema import Split, Task
from agent_layer.settings import Settings, adopt_environment
from envs.tasksets.folder_lines import read_lines
from envs.tasksets.gate.gate import Examination, GateOptions, Progress
from envs.tasksets.gate.screen import print_report, show_progress
from envs.tasksets.gate.trainable import find_report, save_report, write_task_line
from envs.tasksets.registry import list_taskset_names, open_taskset
from envs.tasksets.sources import identify_taskset
from envs.tasksets.taskset import TaskSet, WritesDirectories

Seed = Annotated[int, typer.Option(min=0, help="Another seed gives other tasks.")]


def list_tasksets(context: typer.Context) -> None:
    """List task sets with their version, their levels and the last check."""
    if context.invoked_subcommand is not None:
        return
    settings: Settings = context.obj
    table = Table(box=None, pad_edge=False)
    for column in ("name", "version", "levels", "checked", "what"):
        table.add_column(column, no_wrap=column != "what")
    for name in list_taskset_names():
        taskset = open_taskset(name)
        levels = f"{taskset.levels[0]}-{taskset.levels[-1]}"
        table.add_row(name, taskset.version, levels, _describe_check(settings, taskset), _describe(taskset))
    Console().print(table)


def write(  # noqa: PLR0913  # options of a command are its arguments
    taskset: Annotated[str, typer.Argument(metavar="SET", help="Registered name, or module:attribute.")],
    file: Annotated[Path, typer.Argument(help="TASKS.jsonl, for 'submit' and 'eval'.")],
    *,
    seed: Seed = 0,
    level: Annotated[int, typer.Option(min=0, help="Difficulty.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="Number of tasks.")] = 100,
    split: Annotated[Split, typer.Option(help="Tasks of eval are never among those of train.")] = "train",
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    directories: Annotated[
        bool, typer.Option("--directories", help="Write a folder of Harbor directories, one a task.")
    ] = False,
) -> None:
    """Write tasks of a set into a file, one JSON object on each line.

    With --directories they are written as directories that Harbor's readers take.

    agent-layer tasksets write repair tasks.jsonl --level 1 --count 200

    agent-layer tasksets write terminal chores --directories --count 5
    """
    sys.path.insert(0, str(Path.cwd()))
    if file.exists() and not force:
        raise BadInputError(f"tasks file {file}: expected a new file, found one; choose another name or use --force")
    opened = open_taskset(taskset)
    if level not in opened.levels:
        raise BadInputError(
            f"task set {opened.name!r}: expected a level from {opened.levels[0]} to {opened.levels[-1]}, found"
            f" {level}; choose one with --level"
        )
    tasks = opened.tasks(split=split, seed=seed, level=level, count=count)
    if directories:
        return _write_directories(opened, list(tasks), file)
    lines = [write_task_line(task, opened) for task in tasks]
    _write_lines(file, lines)
    return typer.echo(f"{len(lines)} tasks of {opened.name} in {file}")


def import_folder(  # noqa: PLR0913  # options of a command are its arguments
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A Harbor task, or a folder of them at any depth.")],
    file: Annotated[Path, typer.Argument(help="TASKS.jsonl, for 'submit', 'eval' and 'train'.")] = Path("tasks.jsonl"),
    *,
    image_map: ImageMap = None,
    allow_network: AllowNetwork = False,
    shared_verifier: SharedVerifier = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Write Harbor tasks into a file, one JSON object on each line, and build their images.

    What cannot run here is named on standard error, with what it needs, and left out. The directory stays where it is:
    scorers read its tests there. 'eval' and 'submit' take the folder itself, too.

    agent-layer tasksets import ./tasks tasks.jsonl --image-map ubuntu:24.04=/roots/ubuntu
    """
    settings = read_task_options(context.obj, image_map, allow_network=allow_network, shared_verifier=shared_verifier)
    if file.exists() and not force:
        raise BadInputError(f"tasks file {file}: expected a new file, found one; choose another name or use --force")
    with show_progress("import") as tell:
        subject = "tasks, and their images"
        lines, notes = read_lines(folder, settings, lambda done, total: tell(Progress(done, total, subject)))
    _write_lines(file, lines)
    for one in notes:
        typer.echo(one, err=True)
    typer.echo(f"{len(lines)} tasks of {folder} in {file}")


def _write_lines(file: Path, lines: list[bytes]) -> None:
    try:
        replace_file(file, lines, private=False)
    except OSError as error:
        raise BadInputError(f"tasks file {file}: cannot be written, {error.strerror}; choose another place") from error


def _write_directories(taskset: TaskSet, tasks: Sequence[Task], folder: Path) -> None:
    if not isinstance(taskset, WritesDirectories):
        raise BadInputError(f"task set {taskset.name!r}: has no form as directories; leave --directories out")
    try:
        for task in tasks:
            taskset.write_directory(task, folder / task.id)
    except OSError as error:
        raise BadInputError(f"folder {folder}: cannot be written, {error.strerror}; choose another place") from error
    typer.echo(f"{len(tasks)} tasks of {taskset.name} as directories in {folder}")


def check(  # noqa: PLR0913  # options of a command are its arguments
    context: typer.Context,
    taskset: Annotated[str, typer.Argument(metavar="SET", help="Registered name, or module:attribute.")],
    *,
    seed: Seed = 0,
    level: Annotated[int | None, typer.Option(min=0, help="Only this level; else all.")] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, help="Tasks of each level; else 1, a minute on 2 cores, and of a folder of tasks all."),
    ] = None,
    image_map: ImageMap = None,
    allow_network: AllowNetwork = False,
    shared_verifier: SharedVerifier = False,
) -> None:
    """Check that a task set may train: right solutions score 1, all others 0, and everything is the same twice.

    For each task: the reference and 20 rewrites that keep the behaviour score 1; at least 95 % of the mutants that
    change it, an empty answer and every cheat score 0. Tasks and verdicts are equal twice, the splits are disjoint,
    and the agent does not see what the scorer expects. The result is stored: 'train' refuses a set that failed or was
    never checked. Of a folder of Harbor tasks, which have one solution each, references score 1, empty answers and
    common cheats 0. Exit status 1 if it fails. 'tasksets audit' tries more, on any set.

    agent-layer tasksets check repair --count 2

    agent-layer tasksets check ./tasks --image-map ubuntu:24.04=/roots/ubuntu
    """
    settings = read_task_options(context.obj, image_map, allow_network=allow_network, shared_verifier=shared_verifier)
    _pass_on(settings)
    sys.path.insert(0, str(Path.cwd()))
    options = GateOptions(seed=seed, levels=None if level is None else [level], count=count)
    with show_progress("check") as tell:
        examination = Examination(taskset, options, tell)
        asyncio.run(examination.run())
    report = examination.report()
    print_report(report)
    is_whole = level is None and (count is None or not examination.has_one_reference)
    if is_whole or not report.is_passed:
        save_report(settings.dir, report)
    if not report.is_passed:
        raise AgentFailedError(f"task set {report.taskset!r}: failed its check, {', '.join(report.codes)}; see above")
    kept = (
        "stored: it may train"
        if is_whole
        else "not stored: only a check of all levels, and of all of a folder, lets it train"
    )
    typer.echo(f"passed in {report.seconds:.0f} s; {kept}")


def _pass_on(settings: Settings) -> None:  # kept: why stands in its docstring
    """Let task sets find these settings, which draw tasks in another process too."""
    adopt_environment(
        {
            "AGENT_LAYER_DIR": str(settings.dir.absolute()),
            "AGENT_LAYER_IMAGE_MAP": settings.image_map,
            "AGENT_LAYER_ALLOW_NETWORK": str(settings.allow_network),
            "AGENT_LAYER_SHARED_VERIFIER": str(settings.shared_verifier),
        }
    )


def _describe_check(settings: Settings, taskset: TaskSet) -> str:
    report = find_report(settings.dir, taskset.name, identify_taskset(taskset))
    if report is None:
        return "never"
    return "passed" if report.is_passed else f"failed: {', '.join(report.codes)}"


def _describe(taskset: TaskSet) -> str:
    return (type(taskset).__doc__ or "").strip().splitlines()[0].replace(" Contract: ``TaskSet``.", "")
