"""Write side of the store: records go to the local log, from where a shipper takes them to the store."""

from agent_layer.errors import NotWholeError
from agent_layer.recorder import ensure_shipper, open_recorder
from agent_layer.schema import LogRecord
from agent_layer.settings import Settings


class StoreWriter:
    """Appends records through this process's recorder; a reader of the store has one for later judgements."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def append(self, *records: LogRecord) -> None:
        """Append records that became known later: all of them, or none. Searches find them once they are shipped.

        Raises: BackPressureError: disk or quota stayed full.
        """
        open_recorder(self._settings).append(*records)

    def await_shipped(self, subject: str) -> None:
        """Wait until what this process has appended is stored and indexed.

        Raises: NotWholeError: it still waits in the log after ``flush_seconds``; it will count later.
        """
        flushed = open_recorder(self._settings).flush(self._settings.flush_seconds)
        if flushed.pending:
            limit = self._settings.flush_seconds
            why = flushed.error or f"nothing took it within {limit:g} s, see shipper.log"
            raise NotWholeError(
                f"{subject}: expected it to be stored, but it waits in the log: {why}; it will count once the store"
                " can be reached"
            )

    def ship_decisions(self) -> None:
        """Start a shipper unless one runs here, so that decisions leave the outbox even if their own shipper died."""
        ensure_shipper(self._settings)
