"""Command that queues tasks: ``submit``.

``submit --wait`` shows progress, and reports why a run does not go on.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, cast

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agent_layer.cli.ui.links import print_link
from agent_layer.cli.ui.queue_text import describe_lack
from agent_layer.dispatcher import (
    Dispatcher,
    GroupState,
    Known,
    RunState,
    TaskWithOrigin,
    check_lifetime,
    connect,
    identify_file,
    label_tasks,
    new_tasks,
    num_launched,
    parse_tasks,
    read_placed_tasks,
    read_task_name,
    refuse_failed,
)
from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.infra import format_count
from agent_layer.local import AllowNetwork, ImageMap, SharedVerifier, read_task_options
from agent_layer.recorder import ensure_shipper
from agent_layer.schema import ShortGroupPolicy, Task
from agent_layer.settings import Settings
from agent_layer.store import open_store

ReadFolder: TypeAlias = Callable[[Path, Settings], tuple[list[bytes], list[str]]]
"""Returns the tasks of a folder as lines of a tasks file, and notes on the others."""

_READ_FOLDER = "envs.tasksets:read_lines"
_REDRAW_SECONDS = 0.5
_EXIT_STOPPED = 130


def wait_for(dispatcher: Dispatcher, group_ids: Sequence[str], run: str) -> None:
    """Wait until the groups have closed, and print their outcome.

    Raises: AgentFailedError: a group lacks rollouts; or the run is paused, because too many attempts failed.
    """
    try:
        states = _watch(dispatcher, group_ids, run)
    except KeyboardInterrupt:
        num_left = sum(not group.is_closed for group in dispatcher.groups(group_ids))
        typer.echo(
            f"stopped waiting; {num_left:,} of {len(group_ids):,} tasks are still queued or run: 'agent-layer groups'"
            " shows them, and the same submit with --wait goes on waiting",
            err=True,
        )
        raise typer.Exit(_EXIT_STOPPED) from None
    _report(dispatcher, states, run)


def _watch(dispatcher: Dispatcher, group_ids: Sequence[str], run: str) -> list[GroupState]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    states: dict[str, GroupState] = {}
    reported: list[str] = []
    begun = _read_state(dispatcher, run)
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("rollouts ended", total=None)
        while is_open := [one for one in group_ids if one not in states or not states[one].is_closed]:
            states |= {group.group_id: group for group in dispatcher.wait(is_open, timeout=_REDRAW_SECONDS)}
            now = _read_state(dispatcher, run)
            num_all = sum(group.num_launched for group in states.values())
            num_left = sum(group.num_open for group in states.values())
            progress.update(bar, total=num_all, completed=num_all - num_left, description=_describe(begun, now))
            if not reported and (reported := [*describe_lack(dispatcher, now)]):
                progress.console.print(*reported, sep="\n", highlight=False)
            if num_left and now.is_failing and not now.num_leased:  # a run that a user paused is waited for
                raise _stopped(now, num_left)
            if all(group.is_closed for group in states.values()):
                break
    return [states[one] for one in group_ids if one in states]


def _read_state(dispatcher: Dispatcher, run: str) -> RunState:
    return dispatcher.runs([run])[0]


def _describe(begun: RunState, now: RunState) -> str:
    """Describe the change since ``begun``; it includes what other clients submitted to the run."""
    failed = sum(num for _, num in now.causes) - sum(num for _, num in begun.causes)
    counts = {
        "surplus": now.num_surplus - begun.num_surplus,
        "failed attempts": failed,
        "dead": now.num_dead - begun.num_dead,
    }
    parts = [f"{num} {name}" for name, num in counts.items() if num > 0]
    paused = ["the run is paused"] if now.paused is not None else []
    return ", ".join([*paused, f"{now.num_leased} running", *parts])


def _stopped(state: RunState, num_left: int) -> AgentFailedError:
    return AgentFailedError(
        f"run {state.run}: expected it to go on, but it is paused: {state.paused}; {num_left:,} rollouts stay queued,"
        f" mend the cause, then 'agent-layer runs resume {state.run}' and wait again with the same submit"
    )


def _report(dispatcher: Dispatcher, states: Sequence[GroupState], run: str) -> None:
    num_launched, num_accepted = sum(group.num_launched for group in states), _num_accepted(states)
    fates = {
        "without a reward": num_accepted - sum(group.num_usable for group in states),
        "surplus": _count_closed(dispatcher, "cancelled", [group for group in states if group.fill == "whole"]),
        "dead": _count_closed(dispatcher, "dead", states),
        "cancelled": _count_closed(dispatcher, "cancelled", [group for group in states if group.fill != "whole"]),
    }
    fate_text = "".join(f", {num} {name}" for name, num in fates.items() if num)
    typer.echo(f"accepted {num_accepted} of {num_launched} rollouts{fate_text}")
    if num_short := sum((group.num_accepted or 0) < group.group_size for group in states):
        raise AgentFailedError(
            f"run {run}: expected every group to get as many rollouts as it needs, but {num_short} of {len(states)} got"
            " fewer; 'agent-layer dead' shows errors, 'agent-layer groups --closed' the groups"
        )


def _num_accepted(states: Sequence[GroupState]) -> int:
    return sum(group.num_accepted or 0 for group in states)


def _count_closed(dispatcher: Dispatcher, status: str, groups: Sequence[GroupState]) -> int:
    """Count the rollouts of these groups that have the status."""
    return sum(one.get(status, 0) for one in dispatcher.inspector.tally(groups))


def submit(
    context: typer.Context,
    tasks: Annotated[
        Path,
        typer.Argument(metavar="TASKS.jsonl", help="One JSON object on each line; or a folder of Harbor tasks."),
    ],
    *,
    group_size: Annotated[
        int | None, typer.Option(help="Usable rollouts of each task; else what its line says.")
    ] = None,
    launch: Annotated[
        int | None, typer.Option(help="Rollouts to launch for each task; those too slow to be needed are cancelled.")
    ] = None,
    partial: Annotated[
        ShortGroupPolicy | None,
        typer.Option(help="What becomes of a group with too few usable rollouts: deliver at first."),
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
    leave_out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Tasks to leave out, as 'tasksets audit --leave-out' writes them."),
    ] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Queue tasks of sets that failed 'tasksets check' or 'audit'.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until all of them have ended. Ctrl-C leaves them queued.")
    ] = False,
    image_map: ImageMap = None,
    allow_network: AllowNetwork = False,
    shared_verifier: SharedVerifier = False,
) -> None:
    """Queue tasks for workers. Submitting a file twice queues it once.

    A set that failed 'tasksets check' or 'tasksets audit' is refused, a file by its content; the verdict on others
    becomes the label 'audit' of their trajectories.

    Each line of the file is a task. It needs only an input, which goes to the agent; 'grading' goes to the scorer
    alone. Further fields: id, task_type, env, agent, scorer, rewards, group_size, launch, partial, sampling,
    side_calls, limits, priority, needs, from_policy, expected_seconds, seed, sampling_seed, labels, sandbox, files,
    artifacts, history and calls_optional.

        agent-layer submit TASKS.jsonl --run nightly --group-size 8 --wait
        a line:  {"input": "6 times 7"}
        another: {"input": "6 times 8", "grading": 48, "scorer": "my_scorer:score"}
    """
    named = run or str(context.obj.run)
    if tasks.is_dir():
        allowed = {"allow_network": allow_network, "shared_verifier": shared_verifier}
        lines = _read_folder(tasks, read_task_options(context.obj, image_map, **allowed))
        found = [
            TaskWithOrigin(task, f"{tasks}: task {task.id}")
            for task in parse_tasks(lines, subject=str(tasks), run=named, split=split, group_size=group_size)
        ]
    else:
        found = read_placed_tasks(tasks, run=named, split=split, group_size=group_size)
    left_out = _read_ids(leave_out) if leave_out else set[str]()
    found = [one for one in found if one.task.id not in left_out]
    if not found:
        raise BadInputError(f"{tasks}: expected tasks beside those of {leave_out}, found none; correct either file")
    given = (("launch", launch), ("partial", partial), ("priority", priority))
    changes = {name: value for name, value in given if value is not None}
    placed = [one._replace(task=msgspec.structs.replace(one.task, **changes)) for one in found]
    labelled, failed = label_tasks(
        context.obj.dir,
        (one.task for one in placed),
        None if tasks.is_dir() else identify_file(tasks),
        left_out=left_out,
    )
    if not unchecked:
        refuse_failed(failed, "submit it with --unchecked")
    placed = [one._replace(task=task) for one, task in zip(placed, labelled, strict=True)]
    for one in placed:
        check_lifetime(one.task, context.obj, one.place)
    new = [one.task for one in placed] if known == "all" else _leave_out_known(context.obj, placed, known)
    with connect(context.obj) as dispatcher:
        groups = dispatcher.submit(new, round=asking)
        num_known = len(found) - len(new)
        known_text = f"; {format_count(num_known, 'known task')} left out" if num_known else ""
        typer.echo(f"submitted {format_count(len(groups), 'task')}, {_count(new)}, to run {named}{known_text}")
        print_link(context.obj, "run", named)
        if wait:
            ensure_shipper(context.obj)  # for logs of workers that were killed
            wait_for(dispatcher, groups, named)


def _read_ids(path: Path) -> set[str]:
    """Return the ids that the lines of a tasks file name."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise BadInputError(f"file {path}: expected a readable file, found {error}; check the path") from error
    return {
        read_task_name(line, f"{path} line {number}").id for number, line in enumerate(lines, start=1) if line.strip()
    }


def _read_folder(folder: Path, settings: Settings) -> list[bytes]:  # kept: another package, imported where it is needed
    module, _, name = _READ_FOLDER.partition(":")
    lines, notes = cast("ReadFolder", getattr(import_module(module), name))(folder, settings)
    for one in notes:
        typer.echo(one, err=True)
    return lines


def _count(tasks: list[Task]) -> str:
    num_needed, num_all = sum(task.group_size for task in tasks), sum(num_launched(task) for task in tasks)
    return format_count(num_all, "rollout") + (f" ({num_needed:,} of them needed)" if num_needed < num_all else "")


def _leave_out_known(settings: Settings, tasks: list[TaskWithOrigin], known: Known) -> list[Task]:
    store = open_store(settings)

    def is_stored(task: Task, input_hash: str) -> bool:
        return store.count(run=task.run, split=task.split, input_hash=input_hash) > 0

    return new_tasks(tasks, known, is_stored)
