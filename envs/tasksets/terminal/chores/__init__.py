"""Twenty kinds of chores, five a level."""

from collections.abc import Sequence
from typing import Final

from envs.tasksets.terminal.chores import histories, logs, tables, trees
from envs.tasksets.terminal.chores.chore import Draw

KINDS: Final[Sequence[Sequence[tuple[str, Draw]]]] = (
    (
        ("errors", logs.draw_errors),
        ("sessions", logs.draw_sessions),
        ("rotated", logs.draw_rotated),
        ("cron", logs.draw_cron),
        ("manifest", logs.draw_manifest),
    ),
    (
        ("join", tables.draw_join),
        ("clean", tables.draw_clean),
        ("flatten", tables.draw_flatten),
        ("settings", tables.draw_settings),
        ("encoding", tables.draw_encoding),
    ),
    (
        ("nested", trees.draw_nested),
        ("changes", trees.draw_changes),
        ("modes", trees.draw_modes),
        ("links", trees.draw_links),
        ("sizes", trees.draw_sizes),
    ),
    (
        ("authors", histories.draw_authors),
        ("lost", histories.draw_lost),
        ("first", histories.draw_first),
        ("totals", histories.draw_totals),
        ("orphans", histories.draw_orphans),
    ),
)
"""Kinds by level, each with its name."""
