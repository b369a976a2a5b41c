"""Commands ``store export sft | pairs | steps | hf | verl``: stored trajectories as training data."""

import signal
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agent_layer.errors import BadInputError, CorruptRecordError
from agent_layer.export import first_of_each_task, verl_row, write_export, write_verl
from agent_layer.infra import format_count
from agent_layer.schema import FINAL_STATUSES, HeldOutTasks, JsonObject
from agent_layer.settings import Settings
from agent_layer.store import Filters, Store, open_store, takes_filters
from trainer_adapter.algorithms import AlgorithmConfig, resolve_algorithm
from trainer_adapter.datasets.directory import Format, write_dataset
from trainer_adapter.datasets.rows import RowPlan, make_rows
from trainer_adapter.datasets.selection import Account, read_usable
from trainer_adapter.datasets.verl_batches import batch_rows, find_groups, write_batches
from trainer_adapter.tasks import read_held_out, read_named_sets

Directory: TypeAlias = Annotated[Path, typer.Argument(metavar="DIR", help="New or empty.")]
BestOf: TypeAlias = Annotated[
    int | None, typer.Option("--best-of", min=1, metavar="N", help="Only the N best rewards of each group.")
]
Mixed: TypeAlias = Annotated[
    bool, typer.Option("--mixed-versions", help="Also trajectories that several policy versions sampled.")
]
HeldOut: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE|DIR|TASKSET", help="Held-out tasks, repeatable, beside those that the runs here held out."
    ),
]
Form: TypeAlias = Annotated[Format, typer.Option("--format", help="Of the files.")]
Margin: TypeAlias = Annotated[float, typer.Option(min=0, help="Least difference of the rewards; they always differ.")]
PerGroup: TypeAlias = Annotated[int, typer.Option(min=1, metavar="N", help="Most pairs of a group, the widest first.")]


@takes_filters
def sft(  # noqa: PLR0913  # options of a command are its arguments
    context: typer.Context,
    directory: Directory,
    *,
    best_of: BestOf = None,
    mixed_versions: Mixed = False,
    held_out: HeldOut = None,
    form: Form = "parquet",
    filters: Filters,
) -> None:
    """Write answers to imitate (SFT): ids, loss mask and log-probabilities as sampled, with a card.

    '--reward 0.5..' is rejection sampling, '--best-of 1' best-of-n of each group. Whatever was cut off, failed, is held
    out (split eval) or does not count for its rollout is left out, by name.

        agent-layer store export sft ./warm --run nightly --reward 1.. --best-of 2
        agent-layer train --method sft warm.yaml
    """
    plan = RowPlan(kinds=["sft"], best_of=best_of, mixed_versions=mixed_versions)
    _export(context, directory, plan, form, filters, held_out)


@takes_filters
def pairs(  # noqa: PLR0913  # options of a command are its arguments
    context: typer.Context,
    directory: Directory,
    *,
    margin: Margin = 0.0,
    per_group: PerGroup = 1,
    mixed_versions: Mixed = False,
    held_out: HeldOut = None,
    form: Form = "parquet",
    filters: Filters,
) -> None:
    """Write pairs to prefer (DPO): a better and a worse rollout of one group that answered the same prompt.

    By default the best and the worst of each group. Forked rollouts are in no pair, by name.

        agent-layer store export pairs ./preferences --run nightly --margin 0.5 --per-group 4
        agent-layer train --method dpo dpo.yaml
    """
    plan = RowPlan(kinds=["pairs"], margin=margin, per_group=per_group, mixed_versions=mixed_versions)
    _export(context, directory, plan, form, filters, held_out)


@takes_filters
def steps(
    context: typer.Context,
    directory: Directory,
    *,
    mixed_versions: Mixed = False,
    held_out: HeldOut = None,
    form: Form = "parquet",
    filters: Filters,
) -> None:
    """Write single calls: prompt, answer, reward of the step and of its rollout."""
    _export(context, directory, RowPlan(kinds=["steps"], mixed_versions=mixed_versions), form, filters, held_out)


@takes_filters
def hf(  # noqa: PLR0913  # options of a command are its arguments
    context: typer.Context,
    directory: Directory,
    *,
    best_of: BestOf = None,
    margin: Margin = 0.0,
    per_group: PerGroup = 1,
    mixed_versions: Mixed = False,
    held_out: HeldOut = None,
    form: Form = "parquet",
    filters: Filters,
) -> None:
    """Write one dataset of all three kinds: load_dataset(DIR, "sft"), "pairs" or "steps".

    All of them have the same trajectories: those with a reward that nothing speaks against.
    """
    plan = RowPlan(
        kinds=["sft", "pairs", "steps"],
        best_of=best_of,
        margin=margin,
        per_group=per_group,
        mixed_versions=mixed_versions,
    )
    _export(context, directory, plan, form, filters, held_out)


def _export(
    context: typer.Context, directory: Path, plan: RowPlan, form: Format, filters: Filters, held_out: list[str] | None
) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    of_run = _open_held_out(context.obj, held_out)
    store, account = open_store(context.obj), Account()
    made_by: JsonObject = {
        "namespace": store.keys.namespace,
        "filters": {name: value for name, value in filters.items() if value is not None},
        "options": msgspec.to_builtins(plan),
    }
    has_contents = "sft" in plan.kinds
    with write_dataset(directory, plan.kinds, form, account, made_by) as files, _show_progress("trajectories") as show:
        for rollouts in read_usable(
            store, filters, plan.rule, account, held_out=of_run, contents=has_contents, progress=show
        ):
            for kind, row in make_rows(plan, rollouts, account):
                files[kind].append(row)
    counts = ", ".join(f"{one.num_rows:,} rows of {kind}" for kind, one in files.items())
    typer.echo(f"{counts} from {account.num_found:,} trajectories in {directory}")
    _tell_left_out(account.left_out)


def _tell_left_out(left_out: Counter[str]) -> None:
    """Print what was left out; end the command with 1 if some of it is damaged."""
    if left_out:
        found = ", ".join(f"{number:,} {kind}" for kind, number in left_out.most_common())
        typer.echo(f"left out: {found}", err=True)
    if left_out["unreadable"]:
        raise typer.Exit(1)


@takes_filters
def verl(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.parquet")],
    *,
    groups: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Write training batches of N groups each, in place of the tasks."),
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(metavar="NAME", help="By which their advantages are computed, such as rloo.")
    ] = None,
    held_out: HeldOut = None,
    filters: Filters,
) -> None:
    """Write the tasks of trajectories as a veRL dataset: one row per task.

    With --groups, write the rows that a trainer would learn from instead: ids, masks, log-probabilities and advantages,
    without padding. A group that a filter finds is written whole, in order of closing.

        agent-layer store export verl tasks.parquet --split train
        agent-layer store export verl batches.parquet --run nightly --groups 32 --algorithm grpo
    """
    store = open_store(context.obj)
    if groups is not None:
        return _export_batches(store, file, groups, algorithm, filters, _open_held_out(context.obj, held_out))
    if algorithm is not None:
        raise BadInputError(f"export verl: --algorithm {algorithm} is for --groups, found none; leave one out")
    errors: list[CorruptRecordError] = []
    rows = first_of_each_task(row for row in store.scan(**filters) if row.status in FINAL_STATUSES)
    found = store.read(rows, on_corrupt=errors.append)
    num_written, num_left_out = write_verl(file, (verl_row(one, index) for index, (_, one) in enumerate(found)))
    typer.echo(f"{format_count(num_written, 'task')} in {file}")
    if num_left_out:
        typer.echo(
            f"left out: {format_count(num_left_out, 'task')} whose prompt is not known, or is not text alone", err=True
        )
    for error in errors:
        typer.echo(f"left out: {error}", err=True)
    if errors:
        raise typer.Exit(1)
    return None


def _export_batches(
    store: Store, file: Path, per_batch: int, name: str | None, filters: Filters, of_run: Callable[[str], HeldOutTasks]
) -> None:
    algorithm = resolve_algorithm(AlgorithmConfig(name=name))
    groups, left_out = find_groups(store, filters), Counter[str]()
    if not groups:
        raise BadInputError(
            "export verl: expected closed groups of split train, found none; change the filters, or wait for their end"
        )
    with write_export(file) as path, _show_progress("groups") as progress:
        per_batch = min(per_batch, len(groups))
        rows = batch_rows(
            *(store, groups, per_batch, algorithm, left_out),
            progress=lambda done: progress(done, len(groups)),
            held_out=of_run,
        )
        num_rows = write_batches(path, rows)
    typer.echo(f"{num_rows:,} rows of {format_count(len(groups), 'group')} in {file}")
    _tell_left_out(left_out)


def _open_held_out(settings: Settings, names: list[str] | None) -> Callable[[str], HeldOutTasks]:
    """Return what returns the held-out tasks of a run: those that it held out, and those that are named."""
    named = read_named_sets(names or [], run=settings.run)

    @cache
    def open_of_run(run: str) -> HeldOutTasks:
        return HeldOutTasks([*named, *(read_held_out(settings, run) if run else [])])

    return open_of_run


@contextmanager
def _show_progress(what: str) -> Generator[Callable[[int, int], None]]:
    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda num_done, num_all: bar.update(task, completed=num_done, total=num_all)
