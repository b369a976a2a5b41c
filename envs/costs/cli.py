"""Command ``cost``: what stored attempts took of engines, judges and sandboxes, and what came of it."""

import sys
from typing import Annotated, Literal

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table
from rich.text import Text

from agent_layer.infra import format_count
from agent_layer.settings import Settings
from agent_layer.store import Filters, open_store, takes_filters
from envs.costs.account import Account, Expense, add_up, check_fields, read_expenses
from envs.costs.prices import PriceList, read_prices
from envs.costs.quantities import Quantities

_PIPE_COLUMNS = 240
"""Width without a terminal; enough that nothing is cut."""
_COUNTS = {"rollout": "num_rollouts", "update": "num_updates", "solved": "num_solved"}


@takes_filters
def cost(  # noqa: PLR0913  # options of a command are its arguments
    context: typer.Context,
    *,
    filters: Filters,
    by: Annotated[
        str,
        typer.Option(
            help="One line per value of these fields, separated by commas: run, task, task_type, split, version (the"
            " newest inside), update (the first that learned from its group), fate, label:NAME. '' for one line."
        ),
    ] = "run",
    per: Annotated[
        Literal["all", "rollout", "update", "solved"],
        typer.Option(help="Divide quantities and cost by rollouts, updates or solved tasks."),
    ] = "all",
    success: Annotated[
        float | None, typer.Option(help="A rollout solves its task with this reward or a higher one; else above 0.")
    ] = None,
    prices: Annotated[
        str | None, typer.Option(help="TOML or JSON, a file or its text, instead of AGENT_LAYER_PRICES.")
    ] = None,
    format_: Annotated[Literal["table", "jsonl"], typer.Option("--format")] = "table",
) -> None:
    """Count what attempts took of engines, sandboxes and judges; and with prices, what they cost.

    All attempts count, unless --accepted is given. Wasted is what failed, was rejected by updates, or too old for them.

    agent-layer cost --run r1 --by version --per solved
    agent-layer cost --by update --prices 'engine_hour = 2.5'
    """
    settings: Settings = context.obj
    fields = [field.strip() for field in by.split(",") if field.strip()]
    check_fields(fields)
    known = read_prices(prices or settings.prices)
    accounts = add_up(_read(settings, filters, known), fields, sys.float_info.min if success is None else success)
    if format_ == "jsonl":
        for account in accounts:
            share = account.total.divide(_count(account, per))
            line = msgspec.structs.asdict(account) | {"per": per, "share": share, "currency": known and known.currency}
            typer.echo(msgspec.json.encode(line).decode())
        return
    console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
    console.print(_draw(accounts, fields, per, known))
    total = sum((account.total for account in accounts), Quantities())
    if total.num_uncounted:
        typer.echo(f"{total.num_uncounted:g} calls are left out of tokens: their server did not count", err=True)
    if known and total.num_unpriced:
        typer.echo(f"{total.num_unpriced:g} calls are left out of the cost: their model has no price", err=True)


def describe_cost(settings: Settings, filters: Filters) -> str:
    """Return the cost of all attempts that the filters find, in one line, for ``summary --cost``."""
    known = read_prices(settings.prices)
    accounts = add_up(_read(settings, filters, known), [], sys.float_info.min)
    if not accounts:
        return "cost of 0 attempts: nothing"
    (account,) = accounts
    took = [f"{name} {_write_amount(amount)}" for name, amount in _list_amounts(account.total).items()]
    priced = [f"{account.total.cost:.4f} {known.currency}"] if known else []
    wasted = f"wasted {_wasted(account, known):.0%}"
    return f"cost of {format_count(account.num_attempts, 'attempt')}: {', '.join([*took, wasted, *priced])}"


def _list_amounts(took: Quantities) -> dict[str, float]:
    """Return quantities by the names of their columns."""
    return {
        "calls": took.num_calls,
        "engine s": took.engine_seconds,
        "prompt": took.prompt_tokens,
        "cached": took.cached_tokens,
        "sampled": took.response_tokens,
        "judges": took.judge_tokens,
        "sandbox s": took.sandbox_seconds,
    }


def _write_amount(amount: float) -> str:
    return f"{amount:,.1f}".removesuffix(".0")


def _read(settings: Settings, filters: Filters, prices: PriceList | None) -> list[Expense]:
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("read", total=None)
        store = open_store(settings)
        expenses = read_expenses(
            store, filters, prices, lambda done, total: bar.update(task, completed=done, total=total)
        )
        return list(expenses)


def _count(account: Account, per: str) -> int:
    return 1 if per == "all" else getattr(account, _COUNTS[per])


def _draw(accounts: list[Account], fields: list[str], per: str, prices: PriceList | None) -> Table:
    counts = ("attempts", "rollouts", "solved", "updates")
    took = _list_amounts(Quantities())
    priced = [prices.currency] if prices else []
    names = (*fields, *counts, *took, "wasted", *priced)
    table = Table(*(Column(_show(name)) for name in names), box=None, pad_edge=False)
    for account in accounts:
        shared = ["-" if value is None else _show(str(value)) for value in account.by.values()]
        numbers = [account.num_attempts, account.num_rollouts, account.num_solved, account.num_updates]
        share = account.total.divide(_count(account, per))
        cells = ["-"] * (len(took) + 1)
        if share is not None:
            cells = [*map(_write_amount, _list_amounts(share).values()), f"{share.cost:.4f}"]
        priced = cells[-1:] if prices else []
        table.add_row(*shared, *map(str, numbers), *cells[:-1], f"{_wasted(account, prices):.0%}", *priced)
    return table


def _show(name: str) -> Text:
    """Return a name as it is: it may look like markup, or hold characters that control a terminal."""
    return Text("".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in name))


def _wasted(account: Account, prices: PriceList | None) -> float:
    """Return the share of what was wasted: of the cost, or without prices of the tokens."""
    parts = [account.total, sum(account.waste.values(), Quantities())]
    total, waste = [one.cost if prices else one.prompt_tokens + one.response_tokens for one in parts]
    return waste / total if total else 0.0
