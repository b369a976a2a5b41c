"""What a trainer has drawn since its last checkpoint, so that one that was killed draws the same again."""

from collections import deque
from pathlib import Path

import msgspec

from agent_layer.infra import append_line, read_lines, replace_file
from agent_layer.schema import Record
from agent_layer.settings import Settings
from trainer_adapter.tasks.state import Draw


class JournalEntry(Record, frozen=True, kw_only=True):
    """One draw, as the journal has it."""

    position: int
    draw: Draw
    weights: dict[str, float] | None = None
    """Weights by which it was chosen, where they are not those of the draw before."""


def journal_path(settings: Settings, run: str) -> Path:
    """Return the file of a run's journal."""
    return settings.dir / "runs" / run / "draws.jsonl"


class DrawJournal:
    """Append-only file of one JSON line per draw.

    Args:
        path: see ``journal_path``.
        num_asked: positions of the checkpoint; earlier draws are in it.
    """

    def __init__(self, path: Path, num_asked: int) -> None:
        self._path = path
        written = read_lines(path, JournalEntry)  # without a torn last line, which was never submitted
        entries = {entry.position: entry for entry in written if entry.position >= num_asked}
        self._known = deque(entries[position] for position in sorted(entries))
        self.forget()

    def recall(self, position: int) -> JournalEntry | None:
        """Return what was drawn for a position before the trainer was killed; None: nothing was."""
        while self._known and self._known[0].position < position:
            self._known.popleft()
        if self._known and self._known[0].position == position:
            return self._known.popleft()
        return None

    def append(self, entry: JournalEntry) -> None:
        """Append a draw, in one write, before it is submitted."""
        append_line(self._path, entry)

    def forget(self) -> None:
        """Forget all draws but those that were not recalled yet: a checkpoint has the others."""
        if not self._known:
            self._path.unlink(missing_ok=True)
            return
        replace_file(self._path, (msgspec.json.encode(entry) + b"\n" for entry in self._known))
