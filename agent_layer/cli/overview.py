"""The page of ``agent-layer --help``: the usage, the global options, and commands in panels."""

from collections.abc import Iterable, Mapping, Sequence

import typer
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from agent_layer.cli.commands import Command

_NAME_STYLE = "bold cyan"


def draw_overview(group: TyperGroup, context: typer.Context, panels: Mapping[str, Sequence[Command]]) -> None:
    """Print what typer prints for a group, without the Markdown reader that typer imports for it."""
    console = Console()
    usage = " ".join(group.collect_usage_pieces(context))  # pyright: ignore[reportArgumentType]  # typer hides the type of its context
    console.print(Padding(Text(f"Usage: {context.command_path} {usage}", "bold"), 1))
    console.print(Padding(Text(group.help or ""), (0, 1, 1, 1)))
    records = [param.get_help_record(context) for param in group.get_params(context)]  # pyright: ignore[reportArgumentType]
    console.print(_panel("Options", [record for record in records if record]))
    width = max(len(command.name) for commands in panels.values() for command in commands)
    for title, commands in panels.items():
        console.print(_panel(title, [(command.name, command.summary) for command in commands], width))


def _panel(title: str, rows: Iterable[tuple[str, str]], width: int = 0) -> Panel:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True, min_width=width, style=_NAME_STYLE)
    table.add_column(ratio=1)
    for name, text in rows:
        table.add_row(Text(name), Text(text))
    return Panel(table, title=Text(title, "dim"), title_align="left", border_style="dim")
