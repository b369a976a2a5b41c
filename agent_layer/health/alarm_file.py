"""Alarms: the findings that fire in a run, and the file beside its progress that holds them.

``checks`` defines what can fire. The file says what was sent to people, so that each alarm is sent once.
The trainer and ``agent-layer alerts watch`` write it, one at a time; the page reads it.
"""

from contextlib import AbstractContextManager
from typing import Final

import msgspec

from agent_layer.health.findings import HealthFinding
from agent_layer.infra import hold_lock, make_private, replace_file
from agent_layer.schema import Record
from agent_layer.settings import Settings

_NAME: Final = "alarms.json"


class Alarm(Record, frozen=True, kw_only=True):
    """A finding that fires."""

    finding: HealthFinding
    at: float
    """When it was found first, in seconds since the epoch, UTC."""


class RunAlarms(Record, frozen=True, kw_only=True):
    """All alarms of a run."""

    judged_at: float = 0.0
    """When the newest judged step ended, in seconds since the epoch; a step that ends the run is in no other file."""
    firing: dict[str, Alarm] = {}
    """Firing alarms by name of their check."""


class AlarmFile:
    """The file of one run."""

    def __init__(self, settings: Settings, run: str) -> None:
        self._path = settings.dir / "runs" / run / _NAME

    def read(self) -> RunAlarms:
        """Return what fires; nothing where there is no file."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=RunAlarms)
        except (FileNotFoundError, msgspec.DecodeError):  # none yet, or torn by a machine that lost power
            return RunAlarms()

    def lock(self) -> AbstractContextManager[None]:
        """Context manager: no other process changes the file, or sends what it would say, during the block."""
        make_private(self._path.parent)
        return hold_lock(self._path.with_suffix(".lock"))

    def write(self, alarms: RunAlarms) -> None:
        """Replace the content in one move; call it under ``lock``."""
        replace_file(self._path, msgspec.json.encode(alarms))
