"""Output of all commands: tables, live views, progress, trajectories as text."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.cli.ui.links import print_link as print_link
    from agent_layer.cli.ui.links import print_run_link as print_run_link
    from agent_layer.cli.ui.links import print_step_link as print_step_link
    from agent_layer.cli.ui.output import (
        defuse as defuse,
    )
    from agent_layer.cli.ui.output import (
        describe_seconds as describe_seconds,
    )
    from agent_layer.cli.ui.output import (
        describe_size as describe_size,
    )
    from agent_layer.cli.ui.output import (
        draw_table as draw_table,
    )
    from agent_layer.cli.ui.output import (
        show_progress as show_progress,
    )
    from agent_layer.cli.ui.output import (
        write_lines as write_lines,
    )
    from agent_layer.cli.ui.pager import print_blocks as print_blocks
    from agent_layer.cli.ui.queue_text import (
        MAX_LOOKED_AT as MAX_LOOKED_AT,
    )
    from agent_layer.cli.ui.queue_text import (
        choose as choose,
    )
    from agent_layer.cli.ui.queue_text import (
        describe_depth as describe_depth,
    )
    from agent_layer.cli.ui.queue_text import (
        describe_lack as describe_lack,
    )
    from agent_layer.cli.ui.queue_text import (
        describe_left_out as describe_left_out,
    )
    from agent_layer.cli.ui.queue_text import (
        describe_none as describe_none,
    )
    from agent_layer.cli.ui.queue_text import (
        describe_status as describe_status,
    )
    from agent_layer.cli.ui.queue_text import (
        describe_tries as describe_tries,
    )
    from agent_layer.cli.ui.queue_text import (
        describe_why as describe_why,
    )
    from agent_layer.cli.ui.queue_text import (
        find_run as find_run,
    )
    from agent_layer.cli.ui.queue_text import (
        limit_rows as limit_rows,
    )
    from agent_layer.cli.ui.tables import Column as Column
    from agent_layer.cli.ui.tables import TableView as TableView
    from agent_layer.cli.ui.tables import make_row as make_row
    from agent_layer.cli.ui.trajectory_text import describe_trajectory as describe_trajectory
    from agent_layer.cli.ui.trajectory_text import print_rows as print_rows
    from agent_layer.cli.ui.watch import (
        Format as Format,
    )
    from agent_layer.cli.ui.watch import (
        Limit as Limit,
    )
    from agent_layer.cli.ui.watch import (
        Run as Run,
    )
    from agent_layer.cli.ui.watch import (
        Watch as Watch,
    )
    from agent_layer.cli.ui.watch import (
        present as present,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.cli.ui.links": ("print_link", "print_run_link", "print_step_link"),
            "agent_layer.cli.ui.output": (
                "defuse",
                "describe_seconds",
                "describe_size",
                "draw_table",
                "show_progress",
                "write_lines",
            ),
            "agent_layer.cli.ui.pager": ("print_blocks",),
            "agent_layer.cli.ui.queue_text": (
                "MAX_LOOKED_AT",
                "choose",
                "describe_depth",
                "describe_lack",
                "describe_left_out",
                "describe_none",
                "describe_status",
                "describe_tries",
                "describe_why",
                "find_run",
                "limit_rows",
            ),
            "agent_layer.cli.ui.tables": (
                "Column",
                "TableView",
                "make_row",
            ),
            "agent_layer.cli.ui.trajectory_text": (
                "describe_trajectory",
                "print_rows",
            ),
            "agent_layer.cli.ui.watch": (
                "Format",
                "Limit",
                "Run",
                "Watch",
                "present",
            ),
        },
    )
