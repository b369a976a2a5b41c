"""The log, as the gateway sees it."""

from typing import Protocol

from agent_layer.recorder import PreparedRecords
from agent_layer.schema import LogRecord


class Log(Protocol):
    """Where records go: the recorder."""

    def append(self, *records: LogRecord) -> str:
        """Write records; give the name of the log file."""
        ...

    def prepare(self, *records: LogRecord) -> PreparedRecords:
        """Do all of ``append`` but the write; in any thread."""
        ...

    def append_prepared(self, prepared: PreparedRecords) -> str:
        """Write prepared records; give the name of the log file."""
        ...

    def has_room(self) -> bool:
        """Whether the log is below its quota."""
        ...
