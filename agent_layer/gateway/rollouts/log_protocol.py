"""The log, as the gateway sees it."""

from typing import Protocol

from agent_layer.schema import (
    LogRecord,
)


class Log(Protocol):
    """Where records go: the recorder."""

    def append(self, *records: LogRecord) -> str:
        """Write records; give the name of the log file."""
        ...

    def has_room(self) -> bool:
        """Whether the log is below its quota."""
        ...
