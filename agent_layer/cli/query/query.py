"""Commands that list trajectories and show them: ``query`` and ``show``."""

from collections.abc import Iterator
from typing import Annotated, Literal, cast

import typer

from agent_layer.cli.query.matches import print_matches
from agent_layer.cli.query.omissions import describe_left_out, print_left_out
from agent_layer.cli.ui.links import print_link, print_step_link
from agent_layer.cli.ui.output import write_lines
from agent_layer.cli.ui.pager import print_blocks
from agent_layer.cli.ui.trajectory_text import describe_trajectory, print_rows
from agent_layer.engines import newest_policy
from agent_layer.errors import BadInputError, NotFoundError
from agent_layer.schema import JsonObject
from agent_layer.store import (
    Filters,
    Order,
    Store,
    TrajectoryRow,
    Which,
    open_store,
    parse_which,
    pick_step,
    pick_steps,
    show_row,
    show_step,
    show_trajectory,
    takes_filters,
)


@takes_filters
def query(
    context: typer.Context,
    *,
    filters: Filters,
    step: Annotated[
        str | None,
        typer.Option(help="Show this step of each: an index from 0, last, or tool:NAME for all that called it."),
    ] = None,
    order: Annotated[
        str, typer.Option(help="newest, oldest, reward (best first) or policy (latest first).")
    ] = "newest",
    limit: Annotated[int, typer.Option()] = 32,
    cursor: Annotated[str | None, typer.Option(help="Continue after a page: the cursor at its end.")] = None,
    text: Annotated[
        str | None,
        typer.Option(help="Only those in which a text has all these words; print each with its step and snippet."),
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Print only how many there are.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print how the answer is found, not the answer.")] = False,
    format_: Annotated[Literal["table", "jsonl"], typer.Option("--format")] = "table",
) -> None:
    """List trajectories that match all options, or with --step that step of each.

    Example: --run r1 --reward 0.5.. --order reward. 'agent-layer show ID' shows one of them.
    """
    store = open_store(context.obj)
    _check_versions(store, filters)
    if text is not None:
        if step is not None or count or explain or order != "newest":
            raise BadInputError("--text: expected no --step, --order, --count or --explain beside it; leave these out")
        print_matches(store, text, limit, cursor, filters, as_lines=format_ == "jsonl")
        print_left_out(context.obj, store, filters.get("run"), is_empty=False)
        return
    which = None if step is None else parse_which(step)
    step_filters: Filters = {**filters, "step": which}
    if count:
        num = store.count(**step_filters)
        typer.echo(num)
        print_left_out(context.obj, store, filters.get("run"), is_empty=not num)
        return
    if explain:
        write_lines([store.explain(order=cast("Order", order), limit=limit, **step_filters)])
        return
    page = store.query(order=cast("Order", order), limit=limit, cursor=cursor, **step_filters)
    lines = [line for row in page.items for line in _lines(store, row, which)]
    if format_ == "jsonl":
        write_lines(lines)
    else:
        print_rows(lines)
        print_link(context.obj, "trajectories", filters=step_filters, order="" if order == "newest" else order)
    if page.cursor:
        typer.echo(f"more: add --cursor '{page.cursor}'", err=True)
    print_left_out(context.obj, store, filters.get("run"), is_empty=not page.items)


def show(
    context: typer.Context,
    trajectory: Annotated[str, typer.Argument(help="Its id, as 'query' lists it.")],
    step: Annotated[int | None, typer.Option(min=0, help="This step only.")] = None,
    format_: Annotated[Literal["text", "json"], typer.Option("--format")] = "text",
    fold: Annotated[
        bool | None,
        typer.Option("--fold/--unfold", help="Cut long prompts, reasoning and answers of tools; a terminal's default."),
    ] = None,
    no_pager: Annotated[bool, typer.Option("--no-pager", help="Print at once, however long it is.")] = False,
) -> None:
    """Show one trajectory, or one step of it.

    On a terminal it has colours, folds long parts, and goes through PAGER, or less. Elsewhere it is plain and whole.
    """
    store = open_store(context.obj)
    try:
        row = store.row(trajectory)
    except NotFoundError as error:
        if (left_out := describe_left_out(context.obj, store, None, is_empty=True)) is None:
            raise
        raise NotFoundError(f"{error}; it may be in {left_out}") from error
    whole = store.get(trajectory, blobs=step is None)
    if step is None:
        shown = show_trajectory(row, whole)
    else:
        shown = {**show_row(row), "step": show_step(whole, pick_step(whole, step), store.contents(whole))}
    if format_ == "json":
        write_lines([shown])
    else:
        print_blocks(describe_trajectory(shown), fold=fold, pager=not no_pager)
        print_step_link(context.obj, trajectory, step)


def _lines(store: Store, row: TrajectoryRow, which: Which | None) -> Iterator[JsonObject]:
    """Yield one line, or one for each selected step."""
    if which is None:
        yield show_row(row)
        return
    trajectory = store.get(row.trajectory_id, blobs=False)
    contents = store.contents(trajectory)
    for step in pick_steps(trajectory, which):
        yield {**show_row(row), "step": show_step(trajectory, step, contents)}


def _check_versions(store: Store, filters: Filters) -> None:
    """Refuse a range of policy versions that do not exist yet.

    Raises: BadInputError: its low end is above the newest version of the run, or of all runs.
    """
    lowest, highest = filters.get("policy") or (None, None)
    run = filters.get("run")
    runs = [run] if run else sorted(name.decode() for name in cast("set[bytes]", store.redis.smembers(store.keys.runs)))
    newest = [found for name in runs if (found := newest_policy(store.redis, store.keys, name))]
    if lowest is None or any(lowest <= policy.number for policy in newest):
        return
    known = ", ".join(f"{policy.number} of run {policy.run!r}" for policy in newest) or "no version at all"
    shown = f"{lowest:g}" if lowest == highest else f"{lowest:g}..{'' if highest is None else f'{highest:g}'}"
    raise BadInputError(
        f"policy range {shown!r}: expected it to begin at a version that exists, but the newest is {known};"
        " ask for an older one, or wait for the trainer"
    )
