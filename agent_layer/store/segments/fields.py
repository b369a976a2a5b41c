"""The fields that the index keeps of a trajectory, each declared once.

From this list follow the summaries in segments, the tables of the Lua scripts, filters by value, their command-line
options, and how rows are read. ``Filters``, ``By`` and ``TrajectoryRow`` spell names out for type checkers; a test
compares them with this list.
"""

from typing import Literal, NamedTuple, get_args

from agent_layer.schema import Cause, RolloutStatus, Split


class Field(NamedTuple):
    """One field of the index's hash of a trajectory."""

    name: str
    origin: Literal["started", "outcome", "merged"]
    """Record that sets it: the best AttemptStarted, or the first Outcome. ``merged``: commit.lua has a rule for it."""
    kind: Literal["text", "number", "time", "json"] = "text"
    attribute: str | None = None
    """Attribute of that record; None: the same name."""
    bitmap: str | None = None
    """Name before '=' of the bitmaps that hold its values; None: no search by value. Stored, never to be changed."""
    is_listed: bool = False
    """Whether the set ``values:<bitmap>`` lists its values, so that summaries can group by it."""
    is_bounded: bool = False
    """Whether agents may invent values without end: then only the first that come get a bitmap each."""
    filter: str | None = None
    """Filter by value, which is also the name of the command-line option."""
    help: str = ""
    """Help text of that option."""
    choices: tuple[str, ...] = ()
    """All values that the filter takes; empty: any."""
    is_column: bool = False
    """Whether blocks have a column of its numbers."""


FIELDS = (
    Field("rollout_id", "started"),
    Field("attempt", "started", "number"),
    Field("run", "started", bitmap="run", is_listed=True, filter="run", help="Name of a training or evaluation run."),
    Field("task_id", "started", bitmap="task", filter="task", help="Id of a task, in any run."),
    Field("task_type", "started", bitmap="type", is_listed=True, filter="task_type", help="Type of the task."),
    Field(
        "split",
        "started",
        bitmap="split",
        is_listed=True,
        filter="split",
        help="train, or eval for tasks that no update learns from.",
        choices=get_args(Split),
    ),
    Field("group_id", "started"),
    Field("worker", "started"),
    Field("labels", "started", "json"),
    Field("declared", "started", "json", attribute="rewards"),
    Field("started_at", "started", "time", is_column=True),
    Field(
        "input_hash",
        "started",
        bitmap="input",
        filter="input_hash",
        help="Hash of the task's input, as rows show it.",
    ),
    Field("env", "started", bitmap="env", is_listed=True, filter="env", help="Name of the environment."),
    Field(
        "env_version",
        "started",
        bitmap="env_version",
        is_listed=True,
        filter="env_version",
        help="Version of the environment.",
    ),
    Field(
        "status",
        "outcome",
        bitmap="status",
        is_listed=True,
        filter="status",
        help="running, completed, truncated, failed, cancelled, dead or lost.",
        choices=get_args(RolloutStatus),
    ),
    Field("ended_at", "outcome", "time"),
    Field(
        "cause",
        "outcome",
        bitmap="cause",
        is_listed=True,
        filter="cause",
        help="What ended the attempt: policy, infra, verifier or user.",
        choices=get_args(Cause),
    ),
    Field("calls_at_end", "outcome", "number", attribute="num_calls"),
    Field("accepted", "merged", bitmap="accepted"),
    Field(
        "agents",
        "merged",
        "json",
        bitmap="agent",
        is_listed=True,
        filter="agent",
        help="Name of an agent that made a call.",
    ),
    Field(
        "tools",
        "merged",
        "json",
        bitmap="tool",
        is_listed=True,
        is_bounded=True,
        filter="tool",
        help="Name of a tool that the model called or that answered.",
    ),
    Field("reward", "merged", "number", is_column=True),
    Field("policy_min", "merged", "number", is_column=True),
    Field("policy_max", "merged", "number", is_column=True),
    Field("num_steps", "merged", "number", is_column=True),
    Field(
        "findings",
        "merged",
        "json",
        bitmap="finding",
        is_listed=True,
        filter="finding",
        help="Kind of a finding: prefix_break, no_policy_call, refused, ….",
    ),
    Field("given_labels", "merged", "json"),
    Field(
        "engines",
        "merged",
        "json",
        bitmap="engine",
        is_listed=True,
        filter="engine",
        help="Address of an engine that a call went to, http://HOST:PORT or HOST:PORT.",
    ),
)
"""Segments store fields, and blocks store the ends of columns, in this order: it never changes, new ones come last."""

MAX_LISTED = 1_024
"""Values of a bounded field that have a bitmap each. Trajectories with others share one, ``tool~``, and their rows say
which."""

COLUMNS = tuple(field.name for field in FIELDS if field.is_column)
"""Numbers that blocks keep, in the order in which a zone has their ends."""


def rest_name(bitmap: str) -> str:
    """Return the name of the bitmap of all values of a bounded field that have none of their own."""
    return f"{bitmap}~"
