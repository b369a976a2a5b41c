"""What fires in a run: a file beside its progress, which says what was sent to people, so that each is sent once.

The trainer and ``agent-layer alerts watch`` write it, one at a time; the page reads it.
"""

from contextlib import AbstractContextManager
from typing import Final

import msgspec

from agent_layer.health.progress import HealthFinding
from agent_layer.infra import make_private, replace_file
from agent_layer.infra.processes import hold_lock
from agent_layer.schema import Record
from agent_layer.settings import Settings

_NAME: Final = "alarms.json"


class FiringAlarm(Record, frozen=True, kw_only=True):
    """One alarm that fires."""

    finding: HealthFinding
    at: float
    """When it was found first, in seconds since the epoch, UTC."""


class FiringAlarms(Record, frozen=True, kw_only=True):
    """All that fires in a run."""

    judged_at: float = 0.0
    """When the newest judged step ended, in seconds since the epoch; a step that ends the run is in no other file."""
    firing: dict[str, FiringAlarm] = {}
    """Firing alarms by name."""


class AlarmFile:
    """The file of one run."""

    def __init__(self, settings: Settings, run: str) -> None:
        self._path = settings.dir / "runs" / run / _NAME

    def read(self) -> FiringAlarms:
        """Return what fires; nothing where there is no file."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=FiringAlarms)
        except (FileNotFoundError, msgspec.DecodeError):  # none yet, or torn by a machine that lost power
            return FiringAlarms()

    def lock(self) -> AbstractContextManager[None]:
        """Context manager: no other process changes the file, or sends what it would say, during the block."""
        make_private(self._path.parent)
        return hold_lock(self._path.with_suffix(".lock"))

    def write(self, alarms: FiringAlarms) -> None:
        """Replace the content in one move; call it under ``lock``."""
        replace_file(self._path, msgspec.json.encode(alarms))
