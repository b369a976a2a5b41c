"""A trajectory on a terminal: in colours, long parts folded, through a pager; elsewhere plain and whole."""

import os
from collections.abc import Iterable

from rich.text import Text

from agent_layer.cli.ui.output import defuse, open_console
from agent_layer.cli.ui.trajectory_text import Block, Kind
from agent_layer.infra import format_count

_STYLES: dict[Kind, str] = {
    "title": "bold blue",
    "plain": "",
    "system": "dim",
    "user": "cyan",
    "assistant": "bold",
    "reasoning": "dim italic",
    "tool": "yellow",
    "error": "red",
    "reward": "green",
}
_MAX_LINES: dict[Kind, int] = {"system": 4, "user": 12, "reasoning": 4, "tool": 12, "error": 24}
"""Lines shown of a block; what the policy itself said is never folded."""
_MAX_CHARACTERS = 1_500
"""Shown of a folded kind: a long line folds, too."""


def print_blocks(blocks: Iterable[Block], *, fold: bool | None = None, pager: bool = True) -> None:
    """Print blocks, one below the other.

    Args:
        blocks: what ``describe_trajectory`` yields.
        fold: cut long prompts, reasoning and answers of tools, and say how much is hidden. None: on a terminal only.
        pager: on a terminal, page what is longer than the screen, with the program that PAGER names, else ``less``.
    """
    console = open_console()
    folds = console.is_terminal if fold is None else fold
    text = Text("\n").join(_styled(fold_block(block) if folds else block) for block in blocks)
    if not (pager and console.is_terminal):
        console.print(text, soft_wrap=True)
        return
    os.environ.setdefault("LESS", "FRX")  # ends by itself where all fits, shows colours, leaves the text on the screen
    with console.pager(styles=not console.no_color):
        console.print(text)


def fold_block(block: Block) -> Block:
    """Return a block cut to the size of its kind, with a line that says what is hidden."""
    most = _MAX_LINES.get(block.kind)
    if most is None:
        return block
    shown, room = list[str](), _MAX_CHARACTERS
    for line in block.lines[:most]:
        shown.append(line[:room])
        room -= len(shown[-1])
        if room == 0:
            break
    num_hidden = sum(map(len, block.lines)) - sum(map(len, shown))
    if num_hidden == 0:
        return block
    hidden = format_count(num_hidden, "more character")
    num_lines = len(block.lines) - len(shown)
    lines = f"{format_count(num_lines, 'line')}, " if num_lines else ""
    return Block([*shown, f"    … {lines}{hidden}: --unfold shows all"], block.kind)


def _styled(block: Block) -> Text:
    return Text(defuse("\n".join(block.lines)), style=_STYLES[block.kind])
