"""What died during a training run and was started again, one JSON line each in a file beside its progress.

The trainer and its launcher append to it. Each step's report has those since the step before.
"""

from pathlib import Path

from agent_layer.infra import append_line, read_lines
from agent_layer.schema import Record
from agent_layer.settings import Settings


class Restart(Record, frozen=True, kw_only=True):
    """One start after a death."""

    at: float
    """Seconds since the epoch, UTC."""
    what: str
    """Died: ``run``, all processes of the trainer; or an engine, by its address."""
    why: str
    """What is known of the cause, in one line."""
    from_step: int
    """Last step of the weights with which it goes on; 0: the first weights."""
    number: int
    """Position among starts without a new step between them; the first is 1."""
    most: int
    """Highest number before the run ends."""

    def __str__(self) -> str:
        """Return the restart as one line."""
        return (
            f"restart {self.number} of at most {self.most} without a new step: {self.what} died ({self.why}); it goes"
            f" on from step {self.from_step}"
        )


def restarts_path(settings: Settings, run: str) -> Path:
    """Return the file of a run that lists its restarts."""
    return settings.dir / "runs" / run / "restarts.jsonl"


def append_restart(path: Path, restart: Restart) -> None:
    """Append one line, in one write."""
    append_line(path, restart)


def read_restarts(path: Path, since: float = 0.0) -> list[Restart]:
    """Read all complete lines of restarts after a time, oldest first."""
    return [one for one in read_lines(path, Restart) if one.at > since]
