"""What the sandboxes of an attempt used up, and why one ended early."""

from typing import Literal

from agent_layer.schema import Record


class EndOfBox(Record, frozen=True, kw_only=True):
    """Why a sandbox ended before its user was done, and whose fault it was."""

    box: str
    cause: Literal["policy", "infra"]
    """``policy``: what its own commands did; ``infra``: everything else."""
    reason: Literal["memory", "stuck", "gone"]
    why: str
    """One sentence."""
    role: Literal["agent", "scorer"] = "agent"
    """Who used it."""
    ended_at: float
    """Seconds since the epoch, UTC."""


class SandboxUsage(Record, frozen=True, kw_only=True):
    """What the sandboxes of one attempt took; None: not known."""

    kind: str | None = None
    """Kind of the agent's box."""
    spec_hash: str | None = None
    boot_seconds: float | None = None
    """From asking for the agent's box until it was handed out; a warm pool makes it short."""
    exec_seconds: float = 0.0
    """Wall time of the agent's commands, summed."""
    num_execs: int = 0
    cpu_seconds: float | None = None
    """CPU seconds of the agent's commands, summed."""
    peak_memory_mb: float | None = None
    """Largest of any command of the agent."""
    output_bytes: int = 0
    """Output of the agent's commands."""
    scoring_seconds: float | None = None
    """Wall time of commands in boxes of scorers, summed."""
    num_scoring_boxes: int = 0
    box_seconds: float | None = None
    """Seconds that the agent's box and its forks existed, summed."""
    scoring_box_seconds: float | None = None
    """Seconds that boxes of scorers existed, summed."""
    command_seconds: float = 0.0
    """Seconds in which at least one command of the agent ran."""
    ends: list[EndOfBox] = []
    """Boxes that ended early, in order."""
