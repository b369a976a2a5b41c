"""Texts inside trajectories that match words, as ``query --text`` prints them."""

import typer
from rich.table import Table
from rich.text import Text

from agent_layer.cli.ui.output import defuse, draw_table, show_progress, write_lines
from agent_layer.store import Filters, Store, TextMatch, show_row


def print_matches(store: Store, text: str, limit: int, cursor: str | None, filters: Filters, *, as_lines: bool) -> None:
    """Print the newest matches, and on standard error what was left out and how to go on."""
    with show_progress("segments read for the text index") as progress:
        page = store.search_text(text, limit=limit, cursor=cursor, progress=progress, **filters)
    if as_lines:
        write_lines(
            {**show_row(one.row), "match": {"step": one.step, "where": one.where, "snippet": one.snippet}}
            for one in page.items
        )
    else:
        draw_table(_tabulate(page.items))
    for sentence in page.coverage.describe():
        typer.echo(f"left out: {sentence}", err=True)
    if page.cursor:
        typer.echo(f"more: add --cursor '{page.cursor}'", err=True)


def _tabulate(matches: list[TextMatch]) -> Table:
    table = Table("trajectory_id", "step", "where", "reward", "snippet", box=None, pad_edge=False)
    for one in matches:
        reward = "-" if one.row.reward is None else f"{one.row.reward:g}"
        step = "-" if one.step is None else str(one.step)
        table.add_row(defuse(one.row.trajectory_id), step, one.where, reward, _snippet(one))
    return table


def _snippet(one: TextMatch) -> Text:
    """Return the snippet on one line, with its matches in bold."""
    shown = Text()
    at = 0
    for begin, end in [*one.marks, (len(one.snippet),) * 2]:
        shown.append(_line(one.snippet[at:begin])).append(_line(one.snippet[begin:end]), style="bold")
        at = end
    return shown


def _line(text: str) -> str:
    return defuse("".join(" " if letter.isspace() else letter for letter in text))
