"""Command that counts trajectories and averages their rewards: ``summary``."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Final, Literal, cast

import typer
from rich.table import Table

from agent_layer.cli.query.omissions import print_left_out
from agent_layer.cli.ui.links import print_link
from agent_layer.cli.ui.output import draw_table, write_lines
from agent_layer.infra import format_number
from agent_layer.settings import Settings
from agent_layer.store import Filters, SummaryField, make_takes_filters, open_store

_COSTS: Final = "envs.costs.cli"
"""Above this package, so it is imported by its name, as commands are."""
_BY_HELP = (
    "One line per value of these fields, separated by commas: run, split, task (reads each row), task_type, env,"
    " env_version, status, cause, agent, tool, finding, engine, policy (the newest version in it)."
)


@make_takes_filters(accepted=True)
def summary(
    context: typer.Context,
    *,
    filters: Filters,
    by: Annotated[
        str,
        typer.Option(help=_BY_HELP),
    ] = "task_type",
    success: Annotated[
        float | None, typer.Option(help="A rollout succeeds with this reward or a higher one; else above 0.")
    ] = None,
    cost: Annotated[
        bool, typer.Option("--cost", help="Also one line on what these, and attempts that failed, took; see 'cost'.")
    ] = False,
    format_: Annotated[Literal["table", "jsonl"], typer.Option("--format")] = "table",
) -> None:
    """Count matching trajectories, average their rewards and show their success rate.

    Only accepted attempts count; --any counts all. Examples: --run r1 --by task_type,policy --cost, and --run r1
    --finding self_inflicted --by task,policy, which counts the attempts whose own commands ended them.
    """
    fields = [field.strip() for field in by.split(",") if field.strip()]
    least = sys.float_info.min if success is None else success
    store = open_store(context.obj)
    lines = store.summarise(cast("list[SummaryField]", fields), success=least, **filters)
    if format_ == "jsonl":
        write_lines(lines)
    else:
        table = Table(*fields, "count", "rewarded", "mean reward", "success", box=None, pad_edge=False)
        for line in lines:
            shared = ["" if value is None else str(value) for value in line.by.values()]
            means = ["" if value is None else format_number(value) for value in (line.mean_reward, line.success_rate)]
            table.add_row(*shared, str(line.count), str(line.num_rewarded), *means)
        draw_table(table)
        print_link(context.obj, "trajectories", filters=filters)
    if cost:
        everything = cast("Filters", {name: value for name, value in filters.items() if name != "accepted"})
        describe: Callable[[Settings, Filters], str] = import_module(_COSTS).describe_cost
        typer.echo(describe(context.obj, everything), err=format_ == "jsonl")
    print_left_out(context.obj, store, filters.get("run"), is_empty=not any(line.count for line in lines))
