"""Position in the sequence of a run's tasks, as checkpoints and the journal have it."""

from agent_layer.schema import Record


class Draw(Record, frozen=True, kw_only=True):
    """The task of one position."""

    source: str
    level: int = 0
    index: int
    """Index of the task in the sequence of its source and level."""
    task_id: str


class StreamState(Record, frozen=True, kw_only=True):
    """Position of the sequence, for a checkpoint."""

    weights: dict[str, float] = {}
    """Weights of the last draw."""
    counts: dict[str, int] = {}
    """Draws of each source since these weights are in force."""
    next_indices: dict[str, int] = {}
    """Index of the next task by ``source/level``, those that filters left out included."""
    levels: dict[str, int] = {}
    """Present level of each source."""
    successes: dict[str, list[float]] = {}
    """Success of the groups that were trained at this level, oldest first, of sources with a ramp."""
    digests: dict[str, str] = {}
    """Hash of the file by ``source/level``."""
