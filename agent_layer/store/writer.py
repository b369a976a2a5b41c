"""Write side of the store: records go to the local log, from where a shipper takes them to the store."""

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

    def ship_decisions(self) -> None:
        """Start a shipper unless one runs here, so that decisions leave the outbox even if their own shipper died."""
        ensure_shipper(self._settings)
